"""The reports of `--json`: what each command reports, in the notation of `report_records.py`."""

from __future__ import annotations

from typing import NamedTuple

from deepx_graph.cli.report_records import RECORDS, Fields


class Report(NamedTuple):
    """What a command reports with `--json`."""

    command: str
    summary: str
    fields: Fields


REPORTS: dict[str, Report] = {
    "error": Report("COMMAND", "why a command has failed, beside the text on standard error", {
        "exit_code": ("int", "2 usage, 3 parse, 4 verify, 5 run time, 70 internal error"),
        "errors": ("[Fault]", "in order"),
    }),
    "opt": Report("opt", "what passes and rules did", {
        "pipeline": ("str", "in canonical form"),
        "read": ("float", "seconds of reading"),
        "passes": ("[PassTime]", "in order"),
        "applied": ("{int}", "applications by rule"),
        "declined": ("{int}", "applications that would have changed a type"),
        "rewrites?": ("[AppliedRewrite]", "with --dump-rewrites"),
        "checked?": ("int", "with --verify-each=values, rewrites that were checked"),
        "unchecked?": ("{int}", "with --verify-each=values, those that were not, by the reason"),
    }),
    "shrink": Report("opt, from ONNX to ONNX", "what has changed", {
        "nodes": ("[int]", "before and after"),
        "bytes": ("[int]", "before and after"),
        "operators": ("{[int]}", "each, before and after"),
        "differences": ("{float}", "the largest of each output"),
        "agrees": ("bool", "whether results are the same"),
        "unchecked": ("str", "why they were not compared"),
    }),
    "passes": Report("opt --list-passes", "the passes and pipelines", {
        "passes": ("[Pass]", "all passes"),
        "pipelines": ("{str}", "what each name stands for"),
    }),
    "run": Report("run", "the outputs of a run", {
        "outputs": ("[Output]", "in order"),
        "peak_bytes": ("int|null", "the most with the scratch memory of kernels, where one program has run here"),
        "value_bytes": ("int|null", "the most that values have at once"),
        "profile": ("[ProfileRow]|null", "with --profile"),
    }),
    "explain": Report("run --explain-nan, --explain-error", "where numbers go wrong", {
        "nonfinite?": ("Nonfinite", "with --explain-nan"),
        "rounding?": ("Rounding", "with --explain-error or --what-if"),
    }),
    "check-grad": Report("check-grad", "gradients beside differences", {
        "ok": ("bool", "whether all agree"),
        "double": ("bool", "whether in double precision"),
        "culprits": ("[str]", "the worst first"),
        "left_out": ("[str]", "why samples were left out"),
        "inputs": ("[InputCheck]", "each input"),
    }),
    "check-vjp": Report("check-grad --against-vjp", "gradients beside the stored derivative", {
        "ok": ("bool", "whether all agree"),
        "inputs": ("[ComparedArray]", "each input"),
    }),
    "info": Report("info", "what a program is made of", {
        "name": ("str", "the file"),
        "format": ("str", "its language"),
        "entry": ("str", "the function that runs"),
        "functions": ("[Function]", "the entry first"),
        "flops": ("int|null", "operations of arithmetic of one run"),
        "bytes_moved": ("int|null", "bytes of operands and results of kernels of one run"),
        "open": ("[str]", "counted once"),
        "exported?": ("Exported", "of a file of jax.export"),
        "compared?": ("Comparison", "what the pipeline makes of it"),
        "kernels?": ("Kernels", "how it would run"),
    }),
    "scopes": Report("info --by scope", "costs of the modules of a model", RECORDS["Scope"]),
    "foreign-profile": Report("info --profile-from", "times of another runtime", {
        "runtime": ("str", "which"),
        "runs": ("int", "runs in the trace"),
        "matched": ("float", "share of the time found in the program"),
        "rows": ("[TimedEvent]", "the longest first"),
    }),
    "check": Report("check", "whether budgets hold", {
        "ok": ("bool", "whether all hold"),
        "pipeline": ("str", "the passes before"),
        "budgets": ("[Verdict]", "each budget"),
    }),
    "baseline": Report("check --save-baseline FILE.json, in the file; else check", "figures that a later check may be held to", {
        "pipeline": ("str", "the passes before"),
        "figures": ("{int}", "those that are known"),
    }),
    "loops": Report("loops", "loop programs of kernels", {"kernels": ("[KernelLoops]", "in order")}),
    "why": Report("why FILE A B", "why two operations are, or are not, in one kernel", {
        "fused": ("bool", "whether they are"),
        "kind": ("str", "the reason, of a closed list"),
        "message": ("str", "in words"),
        "kernels": ("[PlacedNode]", "the kernels of both"),
    }),
    "replay": Report("replay", "what came of a crash that was recorded", {
        "recorded": ("str", "the crash as it was: kind and place of the exception, or the signal"),
        "outcome": ("str", "how it ends now"),
        "crashed": ("bool", "whether that is a crash; the exit code is 1 then"),
        "same": ("bool", "whether it is the recorded one"),
        "version": ("str", "the version that recorded it"),
        "arguments": ("[str]", "of the command; {0}, {1}, ... are the files that the reproducer holds"),
    }),
    "certify": Report("certify", "what a certificate shows", {
        "rewrites": ("int", "rewrites that were compared"),
        "explained": ("[str]", "passes that their rewrites explain"),
        "unfolded": ("[str]", "passes that leave the same program once calls and kernels are opened"),
        "compared": ("[str]", "passes before and after which whole programs were compared"),
        "unchecked": ("[str]", "what could not be checked, and why"),
        "written": ("str", "how the second program stands beside that of the certificate"),
        "holds": ("bool", "whether every step was checked; the exit code is 1 where not"),
    }),
    "made": Report("why FILE --made NODE", "which rewrites made a node", {
        "node": ("str", "the node"),
        "first": ("str", "what the chain begins with"),
        "pass": ("str", "the pass that made that one; empty where it was read"),
        "source": ("[str]", "the lines that it came from"),
        "steps": ("[RewriteStep]", "in order; each made what the next one replaced"),
        "operands": ("[RewriteStep]", "rewrites that replaced operands of the first before"),
        "stands_for": ("[RewriteStep]", "rewrites that put the node in the place of others"),
    }),
    "fusion": Report("why FILE", "all kernels, and what was left apart", {
        "engine": ("str", "the engine"),
        "kernels": ("[FusedKernel]", "in order"),
        "declined": ("[DeclinedPair]", "those first that would save most"),
        "reasons": ("{Reason}", "the same by reason"),
    }),
    "plan": Report("plan", "how all values lie on a mesh", {
        "plan": ("str", "in Shardy's notation"),
        "collectives": ("{Collective}", "how devices meet, by kind"),
        "automatic?": ("AutomaticPlan", "with --auto"),
    }),
    "collectives": Report("why FILE --collective", "why devices meet", {"collectives": ("[CollectiveReason]", "each, in order")}),
    "mesh": Report("info --mesh", "what one device of a mesh has", {
        "mesh": ("str", "in Shardy's notation"),
        "devices": ("int", "how many"),
        "figures": ("{int}", "of one device, as budgets name them"),
    }),
    "simulate": Report("simulate", "what a step takes on a cluster, predicted", {
        "mesh": ("str", "in Shardy's notation"),
        "devices": ("int", "how many"),
        "cluster": ("str", "as it was asked for"),
        "step_seconds": ("float", "of one run of the program"),
        "compute_seconds": ("float", "of all kernels of a device"),
        "network_seconds": ("float", "of all its collectives"),
        "exposed_seconds": ("float", "in which it computes nothing meanwhile"),
        "bubble": ("float", "the share of the step in which a device does nothing"),
        "peak_bytes": ("int", "of one device, parameters included"),
        "memory_bytes": ("int", "that a device has"),
        "runs_known": ("bool", "false where a loop of an unknown number of iterations is counted once"),
        "collectives": ("[SimulatedCollective]", "in order"),
    }),
    "network": Report("calibrate --network", "what collectives cost between processes of this machine", {
        "machine": ("str", "the processor"),
        "path": ("str|null", "where it is stored; null where nothing was measured"),
        "cluster": ("str", "the text of a cluster"),
    }),
    "stages": Report("stages", "what each pass of XLA changed", {"modules": ("[DumpedModule]", "each module of the folder")}),
    "bisect": Report("bisect", "the pass that changed a result", {"modules": ("[BisectedModule]", "each module")}),
    "reduce": Report("reduce", "a program made small", {
        "operations": ("[int]", "before and after"),
        "tried": ("int", "programs that were tried"),
        "program": ("str", "the file of the program"),
        "inputs": ("str", "the file of its inputs"),
    }),
    "diff": Report("diff", "what is different", {
        "equal": ("bool", "no change"),
        "verdict": ("str", "whether they are known to mean the same"),
        "changes": ("[Difference]", "each change"),
        "affected": ("int", "nodes that depend on changes"),
        "same": ("int", "nodes in both"),
        "operations": ("{[int]}", "each operation, in both"),
        "scopes": ("[ScopeDifference]", "by scope"),
        "landmarks?": ("Landmarks", "what values tell, where forms do not"),
        "values?": ("Equivalence", "with --values"),
    }),
    "ops": Report("ops", "the operations", {"operations": ("[Operation]", "all, or the one that was named")}),
    "calibrate": Report("calibrate", "the constants of the cost model", {
        "machine": ("str", "the processor"),
        "path": ("str|null", "where they are stored"),
        "note": ("str", "what is wrong with them"),
        "constants": ("{float}", "in use"),
        "shipped": ("{float}", "where nothing was measured"),
    }),
    "cache": Report("cache", "machine code kept on disk", {
        "folder": ("str|null", "where"),
        "used": ("bool", "whether it is used"),
        "entries": ("int", "how many"),
        "bytes": ("int", "their size"),
        "limit": ("int", "bytes that are kept"),
        "days": ("int", "days that unused ones are kept"),
    }),
    "fuzz": Report("fuzz", "what random programs found", {
        "programs": ("int", "programs run"),
        "seconds": ("float", "for how long"),
        "findings": ("[Finding]", "one of each kind"),
    }),
    "grad": Report("grad", "what the gradient program is, with -o FILE", {
        "pipeline": ("str", "in canonical form"),
        "inputs": ("[[str]]", "name and type of each"),
        "outputs": ("[[str]]", "name and type of each"),
        "nodes": ("int", "nodes of the entry"),
    }),
    "build": Report("build", "object code for C", {
        "object": ("str", "the file"),
        "bytes": ("int", "its size"),
        "cpu": ("str", "for which processor"),
        "workspace_bytes": ("int", "that a run needs"),
        "link": ("[str]", "options for the linker"),
        "inputs": ("[[str]]", "name and type of each"),
        "results": ("[[str]]", "name and type of each"),
    }),
    "draw": Report("draw", "what was drawn, with -o FILE", {
        "file": ("str", "the picture"),
        "form": ("str", "dot, svg, png or html"),
        "bytes": ("int", "its size"),
        "notes": ("[str]", "what was left out"),
    }),
}  # fmt: skip
