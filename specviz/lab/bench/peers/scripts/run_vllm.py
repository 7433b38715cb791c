"""vLLM's engine, stepped in this process, plain or with its n-gram drafts. Runs in the peer's Python."""

import itertools
import os

from talk import Clock, serve


def load(options):
    # One process, so that nothing of it is awake while others are measured, on as many cores as they have.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if options["device"] == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        if hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))[: options["threads"]]
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, cores)))
    import vllm

    draft = {}
    if ngram := options.get("ngram"):
        draft["speculative_config"] = {"method": "ngram", "num_speculative_tokens": ngram, "prompt_lookup_max": 4}
    engine = vllm.LLM(
        options["folder"], dtype=options["dtype"], enable_prefix_caching=False, generation_config="vllm",
        max_num_seqs=1, seed=0, **draft,
    ).llm_engine  # fmt: skip
    if ngram and engine.vllm_config.speculative_config is None:
        raise RuntimeError("vLLM switched its n-gram drafts off")
    numbers = itertools.count()

    def answer(request):
        params = vllm.SamplingParams(
            temperature=0.0, max_tokens=request["tokens"], ignore_eos=True, stop_token_ids=request["eos"],
            detokenize=False,
        )  # fmt: skip
        clock, ids, finish = Clock(), [], "length"
        engine.add_request(str(next(numbers)), {"prompt_token_ids": request["prompt"]}, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                found = output.outputs[0]
                if len(found.token_ids) > len(ids):
                    ids = list(found.token_ids)
                    clock.tick(len(ids))
                if output.finished:
                    finish = "eos" if ids and ids[-1] in request["eos"] else found.finish_reason or "length"
        return {"ids": ids, "at": clock.at, "finish": finish}

    return answer, f"vllm {vllm.__version__}" + (f", n-gram drafts of {ngram}" if ngram else "")


if __name__ == "__main__":
    serve("vllm", load)
