"""`completions`: OpenAI completions with token ids, for vLLM and SGLang.

Takes text or token ids as prompt; no chat template is applied. TensorRT-LLM
refuses `return_token_ids` and has the dialect `trtllm`.
"""

from typing import Any

from draftgate.load.apis import APIS
from draftgate.load.apis.dialect import Dialect, LoadPrompt, Settings, raw_prompt
from draftgate.load.apis.openai import (
    TokenIdReader,
    salt_fields,
    sampling_fields,
    streaming_fields,
)


def _body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "prompt": raw_prompt("completions", prompt),
        **streaming_fields(),
        "return_token_ids": True,
        **sampling_fields(settings),
        **salt_fields(settings),
    }


APIS.register("completions")(
    Dialect(
        name="completions",
        path="/v1/completions",
        body=_body,
        reader=TokenIdReader,
        usage_field="usage.completion_tokens, though stream_options.include_usage was sent",
        advice="the server must honour return_token_ids; TensorRT-LLM is asked by the API "
        "trtllm, a server without ids by openai-chat",
    )
)
