"""`openai-chat`: any chat server that repeats usage in every event.

Sends the standard fields and two more whose effect each answer shows: running
usage, by which tokens are counted, and `ignore_eos`, which fixes the length.
What a server might drop in silence (`top_k`, `cache_salt`) is refused here;
vLLM has the dialect `chat` for it, TensorRT-LLM `trtllm-chat`.
"""

from typing import Any

from draftgate.load.apis import APIS
from draftgate.load.apis.dialect import Dialect, LoadPrompt, Settings, chat_messages, refuse
from draftgate.load.apis.openai import RunningUsageReader, sampling_fields, streaming_fields

_INSTEAD = "It is no standard field, and a server may drop it unseen; use chat or trtllm-chat."


def _body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    if settings.cache_salt is not None:
        raise refuse("openai-chat", "cache_salt", _INSTEAD)
    if settings.sampling.top_k != 0:
        raise refuse("openai-chat", f"top_k = {settings.sampling.top_k}", _INSTEAD)
    return {
        "model": settings.model,
        "messages": chat_messages("openai-chat", prompt),
        **streaming_fields(running_usage=True),
        **sampling_fields(settings),
    }


APIS.register("openai-chat")(
    Dialect(
        name="openai-chat",
        path="/v1/chat/completions",
        body=_body,
        reader=RunningUsageReader,
        usage_field="usage.completion_tokens, though stream_options.include_usage was sent",
        advice="the server must honour stream_options.continuous_usage_stats, or send token ids "
        "through one of the APIs chat, completions, sglang, trtllm",
    )
)
