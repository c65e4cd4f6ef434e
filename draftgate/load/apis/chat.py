"""`chat`: OpenAI chat completions with the token ids that vLLM adds to them.

SGLang takes the same request but sends no ids in chat streams (0.5.23), and
TensorRT-LLM refuses it; both are asked by another dialect.
"""

from typing import Any

from draftgate.load.apis import APIS
from draftgate.load.apis.dialect import Dialect, LoadPrompt, Settings, chat_messages
from draftgate.load.apis.openai import (
    TokenIdReader,
    salt_fields,
    sampling_fields,
    streaming_fields,
)


def _body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "messages": chat_messages("chat", prompt),
        **streaming_fields(),
        "return_token_ids": True,
        **sampling_fields(settings),
        **salt_fields(settings),
    }


APIS.register("chat")(
    Dialect(
        name="chat",
        path="/v1/chat/completions",
        body=_body,
        reader=TokenIdReader,
        usage_field="usage.completion_tokens, though stream_options.include_usage was sent",
        advice="the server must honour return_token_ids; where its chat cannot, use the API "
        "sglang, trtllm, completions or openai-chat",
    )
)
