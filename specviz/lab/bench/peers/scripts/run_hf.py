"""transformers' own generate, plain, with prompt lookup or assisted. Runs in the peer's Python."""

from talk import Clock, serve


def load(options):
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(options["threads"])
    settings = {"dtype": getattr(torch, options["dtype"]), "local_files_only": True}
    device = torch.device(options["device"])
    model = AutoModelForCausalLM.from_pretrained(options["folder"], **settings).to(device).eval()
    drafts = {}

    def assisted():
        """Keywords for assisted generation: with the pair's draft model, or with the target's own first layers."""
        if options["draft"] is None:
            return {"assistant_early_exit": model.config.get_text_config().num_hidden_layers // 2}
        if "model" not in drafts:
            draft = AutoModelForCausalLM.from_pretrained(options["draft"], **settings).to(device).eval()
            drafts["model"] = draft
        return {"assistant_model": drafts["model"]}

    def answer(request):
        extra = {"plain": dict, "assisted": assisted}.get(
            request["mode"], lambda: {"prompt_lookup_num_tokens": request["lookup"]}
        )()
        # The model's own defaults (sampling, penalties) must not come through.
        model.generation_config = GenerationConfig(
            do_sample=False, max_new_tokens=request["tokens"], eos_token_id=request["eos"] or None,
            pad_token_id=0, use_cache=True,
        )  # fmt: skip
        config = GenerationConfig(**{name: value for name, value in extra.items() if name != "assistant_model"})
        mode = config.get_generation_mode(extra.get("assistant_model")).value
        if (mode == "assisted_generation") != (request["mode"] != "plain"):
            raise RuntimeError(f"transformers chose {mode} where {request['mode']} was asked for")
        ids = torch.tensor([request["prompt"]], device=device)
        streamer = Streamer()
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), streamer=streamer, **extra
            )[0, ids.shape[1] :].tolist()  # fmt: skip
        finish = "eos" if out and out[-1] in request["eos"] else "length"
        return {"ids": out, "at": streamer.clock.at, "finish": finish}

    return answer, f"transformers {transformers.__version__}, torch {torch.__version__}"


class Streamer:
    """Counts what generate hands on behind every pass; the first hand-over is the prompt itself."""

    def __init__(self):
        self.clock, self.count = Clock(), None

    def put(self, ids):
        if self.count is None:
            self.count = 0
            return
        self.count += ids.numel()
        self.clock.tick(self.count)

    def end(self):
        pass


if __name__ == "__main__":
    serve("transformers", load)
