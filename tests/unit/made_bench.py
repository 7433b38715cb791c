"""A benchmark made up of chosen numbers, so that its figures can be worked out by hand."""

from specviz.lab.bench.document import Bench, Entry, Lane, Reading, Result
from specviz.lab.bench.figures import summarise
from specviz.trace import Calibration, Device

COSTS = Calibration(c=0.2, v=[1.0, 1.1, 1.2, 1.3], h=0.05, h0=0.02, unit_s=0.01)


def result(prompt: str, lane: str, rate: float, tokens: int = 100, **more) -> Result:
    given = {"steps": tokens, "accepted": 0, "tested": 0, "nll": 2.0 * tokens, **more}
    return Result(prompt, lane, 1, list(range(tokens)), tokens, tokens, tokens / rate, 0.1, "length", **given)


def made_bench(rates: dict[str, list[float]] | None = None, prompts: int = 4) -> Bench:
    """Prompts p0, p1, ... of the categories prose and code in turn; `rates` by lane and prompt."""
    rates = rates or {
        "plain int4": [100.0, 100.0, 50.0, 50.0],
        "plain bfloat16": [40.0, 40.0, 20.0, 20.0],
        "ngram g3 int4": [200.0, 150.0, 100.0, 50.0],
        "pool g3 c1 int4": [100.0, 90.0, 50.0, 42.0],
        "pool g3 c2 int4": [120.0, 95.0, 70.0, 45.0],
        "hf bfloat16": [20.0, 20.0, 20.0, 20.0],
    }
    model = {"alpha": 0.5, "c": 0.2, "v": 1.3, "h": 0.05, "h0": 0.02, "speedup": 1.5, "from_tokens": 1.4}
    drafted = {"steps": 50, "accepted": 30, "tested": 40, "overlap": 0.5, "predicted": model}
    bench = Bench(
        created_at="2026-01-02T03:04:05+00:00",
        updated_at="2026-01-02T03:05:05+00:00",
        app_version="0.1.0",
        command="python -m specviz bench",
        versions={"python": "3.11", "torch": "2.13", "transformers": "5.24"},
        device=Device("a processor, 2 cores", "cpu", "int4", 2, "fast-cpu"),
        target="made up",
        reference="float32",
        settings={"max_new_tokens": 100, "seed": 0, "ignore_eos": False, "rounds": 1},
        prompts=[Entry(f"p{i}", ("prose", "code")[i % 2], "0" * 64, 10) for i in range(prompts)],
        lanes=[_lane(name) for name in rates],
        done=prompts,
    )
    for name, values in rates.items():
        more = drafted if bench.lane(name).kind == "draft" else {}
        bench.results += [result(f"p{i}", name, rate, **more) for i, rate in enumerate(values)]
    for i in range(prompts):
        bench.readings.append(Reading(f"p{i}", "float32", "plain int4", 100, 100, 200.0))
        bench.readings.append(Reading(f"p{i}", "int4", "plain int4", 100, 97, 210.0))
    bench.lanes.append(Lane("vllm bfloat16", "peer", "bfloat16", peer="vllm", status="missing", message="No module."))
    bench.summary = summarise(bench)
    return bench


def _lane(name: str) -> Lane:
    words = name.split()
    if words[0] == "plain":
        return Lane(name, "plain", words[-1], draft="none")
    if words[0] == "hf":
        return Lane(name, "peer", words[-1], peer="hf", prefill="first-token", note="transformers 5.24")
    gamma, count = int(words[1][1:]), int(words[2][1:]) if words[0] == "pool" else 1
    return Lane(name, "draft", words[-1], draft=words[0], gamma=gamma, candidates=count, calibration=COSTS)
