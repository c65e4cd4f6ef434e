"""Draft heads of our own: from prompts and a target model to a head that engines load.

`recipe` says what to make, `pipeline` names the steps and goes on where it
stopped, one module a step does the work. PyTorch, Transformers, Speculators and
vLLM are imported inside steps alone.
"""
