"""llama.cpp through llama-cpp-python, plain or with its prompt lookup. Runs in the peer's Python."""

from talk import Clock, serve


def load(options):
    import llama_cpp
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    lookup = options.get("lookup")
    model = Llama(
        options["gguf"], n_ctx=options["context"], n_threads=options["threads"], n_threads_batch=options["threads"],
        verbose=False, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=lookup) if lookup else None,
    )  # fmt: skip

    def answer(request):
        model.reset()  # else the prompt's keys and values of the round before would be used again
        eos, ids, finish = set(request["eos"]), [], "length"
        clock = Clock()
        for token in model.generate(request["prompt"], temp=0.0, top_k=1, repeat_penalty=1.0, reset=False):
            ids.append(token)
            # With drafts the tokens of one pass come one behind the other: what a pass gave cannot be told.
            clock.tick(len(ids))
            if token in eos or len(ids) >= request["tokens"]:
                finish = "eos" if token in eos else "length"
                break
        return {"ids": ids, "at": clock.at, "finish": finish, "passes": not lookup}

    note = f"llama-cpp-python {llama_cpp.__version__}"
    return answer, note + (f", prompt lookup of {lookup}" if lookup else "")


if __name__ == "__main__":
    serve("llama_cpp", load)
