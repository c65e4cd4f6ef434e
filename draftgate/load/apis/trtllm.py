"""`trtllm` and `trtllm-chat`: TensorRT-LLM's completions and chat.

Its request models forbid unknown fields, so a body holds nothing else. Token
ids come from completions alone and only without text (`detokenize: false`);
each event holds the new ones. Chat has no ids and is counted by running usage.
The completions request has no `cache_salt`, the chat request has.
"""

from typing import Any

from draftgate.load.apis import APIS
from draftgate.load.apis.dialect import (
    Dialect,
    LoadPrompt,
    Settings,
    chat_messages,
    raw_prompt,
    refuse,
)
from draftgate.load.apis.openai import (
    RunningUsageReader,
    TokenIdReader,
    salt_fields,
    sampling_fields,
    streaming_fields,
)


def _body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    if settings.cache_salt is not None:
        raise refuse(
            "trtllm",
            "cache_salt",
            "Use the API trtllm-chat, or start the server without reuse of KV blocks and "
            "leave the salt out.",
        )
    return {
        "model": settings.model,
        "prompt": raw_prompt("trtllm", prompt),
        **streaming_fields(),
        "detokenize": False,
        **sampling_fields(settings),
    }


def _chat_body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "messages": chat_messages("trtllm-chat", prompt),
        **streaming_fields(running_usage=True),
        **sampling_fields(settings),
        **salt_fields(settings),
    }


APIS.register("trtllm")(
    Dialect(
        name="trtllm",
        path="/v1/completions",
        body=_body,
        reader=TokenIdReader,
        usage_field="usage.completion_tokens, though stream_options.include_usage was sent",
        advice="the server must honour detokenize: false; is it TensorRT-LLM?",
        gives_text=False,
    )
)

APIS.register("trtllm-chat")(
    Dialect(
        name="trtllm-chat",
        path="/v1/chat/completions",
        body=_chat_body,
        reader=RunningUsageReader,
        usage_field="usage.completion_tokens, though stream_options.include_usage was sent",
        advice="the server must honour stream_options.continuous_usage_stats; TensorRT-LLM's "
        "token ids come with the API trtllm",
    )
)
