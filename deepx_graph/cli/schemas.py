"""What the reports of `--json` hold: every field with its type, and the JSON Schemas (draft 2020-12) made of that.

A type is written `str`, `int`, `float` (also the texts NaN, Infinity, -Infinity), `bool`, `any`; `[T]` is a list, `{T}` a mapping
from names, `A|null` may be null; a capital letter begins the name of a record. A field whose name ends in `?` may be missing. A
report says its schema in the field `schema`; the number at its end grows when a field is taken away or changes its meaning, not
when one is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from deepx_graph.errors import Diagnostic, UsageError, printable, suggest

VERSION = 1
"""Of all schemas together."""

Fields = Mapping[str, tuple[str, str]]


class Report(NamedTuple):
    """What a command reports with `--json`."""

    command: str
    summary: str
    fields: Fields


RECORDS: dict[str, Fields] = {
    "Fault": {
        "message": ("str", "what is wrong"),
        "severity": ("str", "error, warning or note"),
        "file": ("str|null", "the text or file that it is about"),
        "line": ("int|null", "of the first character, from 1"),
        "column": ("int|null", "of the first character, from 1"),
        "end_line": ("int|null", "of the end"),
        "end_column": ("int|null", "behind the last character"),
        "byte": ("int|null", "in a binary file, from 0"),
        "expected": ("str|null", "what would be right"),
        "hint": ("str|null", "how to mend it"),
        "notes": ("[str]", "more"),
    },
    "Change": {
        "before": ("int|null", "before the pipeline; null where open sizes leave it unknown"),
        "after": ("int|null", "after it"),
    },
    "Function": {
        "name": ("str", "its name"),
        "public": ("bool", "whether others may call it"),
        "inputs": ("[[str]]", "name and type of each"),
        "outputs": ("[[str]]", "name and type of each"),
        "effects": ("bool", "whether it takes and gives the state of effects"),
        "input_bytes": ("int|null", "bytes of all inputs; null where sizes are open"),
        "nodes": ("int", "nodes"),
        "edges": ("int", "edges"),
        "depth": ("int", "nodes on the longest path"),
        "ops": ("{int}", "how often each operation stands there"),
        "families": ("{int}", "the same by family"),
        "constant_bytes": ("int", "bytes of constants"),
        "kernels": ("int", "nodes that compute something"),
        "flops": ("int|null", "operations of arithmetic of one call"),
        "bytes_moved": ("int|null", "bytes that kernels read and write"),
        "peak_bytes": ("int|null", "the most bytes that values have at once"),
        "parameters": ("int", "elements of inputs that are weights"),
        "parameter_bytes": ("int", "their bytes"),
        "places": ("{int}", "nodes by line of the user's own program"),
        "open": ("[str]", "loops that run an unknown number of times, counted once"),
        "runs": ("int", "how often one run of the program calls it"),
        "runs_known": ("bool", "whether that is the whole answer"),
    },
    "KernelRow": {
        "function": ("str", "where it stands"),
        "kernel": ("str", "its name"),
        "type": ("str", "the type of its result"),
        "line": ("int|null", "line of the text"),
        "lowering": ("str", "how it runs"),
        "bytes": ("int", "read and written in one call"),
        "flops": ("int", "operations of arithmetic of one call"),
        "predicted_us": ("float|null", "microseconds that one call is to take"),
        "bound": ("str", "what bounds it: memory, arithmetic, the call"),
        "share": ("float", "of the predictions of all"),
        "runs": ("int", "calls in one run"),
        "runs_known": ("bool", "whether that is the whole answer"),
    },
    "PythonStep": {
        "kind": ("str", "what kind of step"),
        "count": ("int", "in one call"),
        "count_known": ("bool", "whether that is the whole answer"),
        "reason": ("str", "why it is not machine code"),
        "nodes": ("[str]", "the first of them"),
    },
    "Kernels": {
        "engine": ("str", "the engine that runs"),
        "threads": ("int", "its threads"),
        "constants": ("str", "measured or shipped"),
        "note": ("str", "what is wrong with the constants"),
        "rows": ("[KernelRow]", "the longest first"),
        "left": ("int", "kernels that were not looked at"),
        "value_bytes": ("int|null", "the most that values have at once"),
        "peak_bytes": ("int|null", "with the scratch memory of kernels"),
        "python_steps": ("[PythonStep]|null", "beside machine code"),
        "predicted_us": ("float", "microseconds of one run"),
        "engines": ("{str}", "the engines present, with versions"),
    },
    "Comparison": {
        "pipeline": ("str", "the pipeline"),
        "ops": ("{Change}", "each operation"),
        "figures": ("{Change}", "each figure"),
        "open": ("{[str]}", "what runs an unknown number of times, before and after"),
    },
    "Exported": {
        "name": ("str", "the function"),
        "calling_convention": ("int", "its version"),
        "platforms": ("[str]", "for which it was exported"),
        "jax": ("str", "the version of JAX"),
        "inputs": ("[str]", "types of arguments"),
        "outputs": ("[str]", "types of results"),
        "in_tree": ("str", "structure of arguments"),
        "out_tree": ("str", "structure of results"),
        "kept": ("[int]", "which arguments are inputs"),
        "has_vjp": ("bool", "whether a derivative is stored"),
    },
    "Scope": {
        "name": ("str", "its path"),
        "operations": ("int", "operations inside"),
        "parameters": ("int", "elements of weights"),
        "parameter_bytes": ("int", "their bytes"),
        "flops": ("int", "operations of arithmetic of one run"),
        "bytes_moved": ("int", "bytes that are read and written"),
        "least_ms": ("float", "the least time by the roofline, of each operation by itself"),
        "inside": ("[Scope]", "the scopes inside, in order"),
    },
    "TimedEvent": {
        "name": ("str", "the event"),
        "node": ("str|null", "the node that stands for it"),
        "scope": ("str", "its scope"),
        "seconds": ("float", "of one run"),
        "calls": ("int", "of one run"),
        "share": ("float", "of all events"),
    },
    "Verdict": {
        "budget": ("str", "as it was given"),
        "figure": ("str", "what is bounded"),
        "sign": ("str", "<, <=, ..."),
        "bound": ("int", "the bound"),
        "before": ("int|null", "the figure before the pipeline"),
        "value": ("int", "the figure"),
        "holds": ("bool", "whether the budget holds"),
    },
    "KernelLoops": {
        "kernel": ("str", "its name"),
        "type": ("str", "of its result"),
        "lowering": ("str", "how it runs"),
        "outer": ("str", "the kernel inside which it runs"),
        "sources": ("[str]", "places in the text"),
        "names": ("[str]", "what it computes"),
        "program": ("str|null", "its loop program; null where it is made in another way"),
    },
    "PlacedNode": {
        "node": ("str", "the node"),
        "kernel": ("KernelRow", "where it is computed"),
        "measured_us": ("float|null", "of one call"),
    },
    "RewriteStep": {
        "number": ("int", "of the rewrite, from 1 across the pipeline"),
        "pass": ("str", "the pass"),
        "rule": ("str", "the rule"),
        "equation": ("str", "what the rule says; empty for what is no rule"),
        "before": ("str", "what it replaced"),
        "after": ("str", "what it put there"),
        "place": ("str|null", "the line of what it replaced"),
    },
    "FusedKernel": {
        "function": ("str", "where it stands"),
        "name": ("str", "its name"),
        "type": ("str", "of its result"),
        "operations": ("{int}", "how often each operation is in it"),
        "scopes": ("{float}", "the share of each scope"),
        "lowering": ("str", "how it runs"),
        "outer": ("str", "how that runs which it is a part of"),
        "bytes": ("int", "of one call"),
        "flops": ("int", "of one call"),
        "runs": ("int", "calls in one run"),
        "runs_known": ("bool", "whether that is the whole answer"),
    },
    "DeclinedPair": {
        "function": ("str", "where the two stand"),
        "first": ("str", "one"),
        "second": ("str", "the other"),
        "operations": ("[str]", "what they are"),
        "reads": ("bool", "whether the second reads the first, else both read one value"),
        "scope": ("str", "of the second"),
        "saves": ("int", "bytes that one kernel for both would save in a run"),
        "kind": ("str", "why they are apart"),
        "message": ("str", "in words"),
    },
    "Reason": {
        "pairs": ("int", "how many are apart for it"),
        "saves": ("int", "bytes that fusing them would save"),
    },
    "DumpStage": {
        "order": ("int", "number in the dump"),
        "title": ("str", "the pass"),
        "file": ("str", "the file"),
        "nodes": ("int", "nodes"),
        "changes": ("[str]", "what it changed"),
    },
    "DumpedModule": {
        "number": ("int", "its number"),
        "name": ("str", "its name"),
        "stages": ("[DumpStage]", "in order"),
    },
    "SkippedStage": {
        "stage": ("str", "which"),
        "reason": ("str", "why it was not run"),
    },
    "Rewrite": {
        "number": ("int", "its number"),
        "rule": ("str", "the rule"),
    },
    "BisectedModule": {
        "name": ("str", "the module"),
        "stages": ("int", "how many there are"),
        "evaluated": ("int", "how many were run"),
        "skipped": ("[SkippedStage]", "those that could not be run"),
        "found": ("bool", "whether a stage differs"),
        "kind": ("str|null", "the class of the difference"),
        "pass": ("str|null", "the first stage that differs"),
        "departs_at": ("[str]|null", "the operation, before and after"),
        "rewrite?": ("Rewrite", "the rewrite that did it"),
    },
    "Difference": {
        "kind": ("str", "added, removed, changed, ..."),
        "function": ("str", "where"),
        "text": ("str", "what"),
    },
    "ScopeDifference": {
        "first": ("str", "a scope of the first program"),
        "second": ("str", "its partner"),
        "same": ("int", "operations in both"),
        "removed": ("int", "only in the first"),
        "added": ("int", "only in the second"),
        "changed": ("int", "not the same"),
    },
    "Landmarks": {
        "outputs": ("bool", "they agree on generated inputs"),
        "first": ("[ModuleValues]", "the modules of the first program"),
        "second": ("[ModuleValues]", "of the second"),
    },
    "ModuleValues": {
        "scope": ("str", "a module of the model"),
        "found": ("int", "values that leave it and occur in the other program"),
        "values": ("int", "all that leave it"),
    },
    "Witness": {
        "output": ("str", "the output that differs"),
        "difference": ("str", "how"),
        "precision": ("str", "in which precision"),
    },
    "Equivalence": {
        "kind": ("str", "identical, equivalent, different, ..."),
        "same": ("bool", "whether they compute the same"),
        "evidence": ("str", "what that rests on"),
        "witness": ("Witness|null", "inputs that show a difference"),
        "algebra": ("AlgebraicEvidence|null", "what residues modulo primes say, where they were asked"),
    },
    "AlgebraicEvidence": {
        "equal": ("bool|null", "whether the programs are equal as algebra; null where residues cannot say"),
        "evidence": ("str", "in words"),
    },
    "Operand": {
        "name": ("str", "its name"),
        "type": ("str", "what may stand there"),
        "variadic": ("bool", "any number of them"),
        "optional?": ("bool", "it may be missing"),
        "summary": ("str", "what it is"),
    },
    "Attribute": {
        "name": ("str", "its name"),
        "kind": ("str", "its type"),
        "default": ("str|null", "null for one that is required"),
        "constraint": ("str|null", "what holds of it"),
        "summary": ("str", "what it is"),
    },
    "Operation": {
        "name": ("str", "its name"),
        "summary": ("str", "what it does"),
        "family": ("str", "its family"),
        "source": ("str", "who defines it"),
        "traits": ("[str]", "what is claimed of it"),
        "loop_program": ("[str]", "what loops are made of"),
        "operands": ("[Operand]", "operands"),
        "attributes": ("[Attribute]", "attributes"),
        "results": ("[Operand]", "results"),
        "constraints": ("[str]", "between them"),
        "gradient": ("bool", "whether it has one"),
        "no_gradient_by": ("[str]", "operands without"),
        "assembly": ("str|null", "its short form"),
        "example": ("str", "a program"),
    },
    "InputCheck": {
        "name": ("str", "the input"),
        "type": ("str", "its type"),
        "samples": ("int", "samples that count"),
        "error": ("float", "the largest relative error"),
        "gradient": ("float", "by the gradient program"),
        "difference": ("float", "by differences"),
        "ok": ("bool", "whether they agree"),
        "checked": ("bool", "whether that says something"),
        "zero": ("bool", "zero by structure"),
    },
    "Output": {
        "name": ("str", "its name"),
        "type": ("str", "its type"),
        "values?": ("any", "its elements, where there are at most 64"),
        "digest?": ("str", "SHA-256 of dtype, shape and bytes, with --digest"),
    },
    "ProfileRow": {
        "function": ("str", "where it stands"),
        "kernel": ("str", "its name"),
        "type": ("str", "of its result"),
        "line": ("int|null", "of the text"),
        "calls": ("int", "all calls"),
        "seconds": ("float", "of all calls"),
        "bytes": ("int", "of all calls"),
        "gb_per_s": ("float", "achieved"),
        "share": ("float", "of the whole time"),
        "fallback": ("str", "why it is not a kernel of the engine"),
        "lowering": ("str", "how it runs"),
        "predicted": ("float|null", "seconds of one call"),
        "median": ("float", "seconds of one call"),
        "warm": ("bool", "whether first calls are left out"),
        "minimum": ("float", "seconds of one call"),
        "operations": ("int", "operations of arithmetic of one call"),
        "roof": ("float|null", "what the machine allows at best, of the median"),
    },
    "PassTime": {
        "name": ("str", "the pass"),
        "seconds": ("float", "its time"),
        "nodes_before": ("int", "nodes before"),
        "nodes_after": ("int", "after"),
    },
    "AppliedRewrite": {
        "number": ("int", "in order"),
        "pass": ("str", "the pass"),
        "rule": ("str", "the rule"),
        "before": ("str", "the node"),
        "after": ("str", "what took its place"),
        "place": ("str|null", "in the text"),
    },
    "Pass": {
        "name": ("str", "its name"),
        "summary": ("str", "what it does"),
        "options": ("{any}", "with defaults"),
    },
    "Finding": {
        "seed": ("int", "of the program"),
        "check": ("str", "which it did not pass"),
        "message": ("str", "what is wrong"),
        "signature": ("str", "the same for one cause"),
        "count": ("int", "programs that show it"),
    },
    "ComparedArray": {
        "name": ("str", "the input"),
        "difference": ("float", "the largest"),
        "tolerance": ("float", "what may be rounding"),
        "at": ("[int]", "where"),
        "finite": ("bool", "whether there was something finite to compare with"),
    },
    "NonfiniteOutput": {
        "name": ("str", "the output"),
        "nan": ("int", "elements that are NaN"),
        "infinite": ("int", "infinite elements"),
    },
    "NonfiniteOrigin": {
        "operation": ("str", "what it is"),
        "name": ("str", "its name"),
        "place": ("str|null", "in the text"),
        "kind": ("str", "NaN or infinity"),
        "count": ("int", "elements"),
        "element": ("[int]", "the first of them"),
        "operands": ("[str]", "their values there"),
        "iteration": ("int|null", "of its loop"),
        "lines": ("[str]", "the same in words, with causes and advice"),
    },
    "OutputError": {
        "name": ("str", "the output"),
        "error": ("float", "relative, by the 2-norm"),
    },
    "NodeError": {
        "operation": ("str", "what it is"),
        "name": ("str", "its name"),
        "place": ("str|null", "in the text"),
        "runs": ("int", "how often it ran"),
        "own": ("float", "relative error of its own"),
        "total": ("float", "with what it inherits"),
        "operands": ("float", "the largest of an operand"),
        "decided": ("int", "elements that double precision decides otherwise"),
        "contribution": ("float", "to the relative error of outputs; NaN where not known"),
        "stored": ("float", "error of outputs if its value alone were stored as --what-if says"),
    },
    "Nonfinite": {
        "outputs": ("[NonfiniteOutput]", "those that are not finite"),
        "origins": ("[NonfiniteOrigin]", "in the order of the run"),
        "harmless": ("int", "others that reach no output"),
    },
    "Rounding": {
        "outputs": ("[OutputError]", "each output"),
        "nodes": ("[NodeError]", "operations on floats"),
        "explained": ("float", "the part of the error that contributions add up to"),
        "why_not": ("str", "why contributions are not known"),
        "cancellations": ("[str]", "operations that lose digits, the worst first"),
    },
    "CollectiveReason": {
        "name": ("str", "the kind and a number"),
        "kind": ("str", "all_reduce, all_gather, ..."),
        "bytes": ("int", "of its result on one device"),
        "axes": ("str", "of the mesh, along which devices meet"),
        "devices": ("int", "how many meet"),
        "value": ("str", "what is moved"),
        "at": ("str", "what needs it; empty for a result"),
        "location": ("str", "of that, in the text"),
        "reason": ("str", "one of a closed list"),
        "before": ("str", "how the value lies"),
        "after": ("str", "how it is needed"),
        "origins": ("[str]", "where the axes came from"),
        "instead": ("[str]", "changes under which devices exchange less"),
    },
    "AutomaticPlan": {
        "seconds": ("float", "of a step, predicted"),
        "gap": ("float", "by how much of these at most another plan is better"),
        "memory_bytes": ("int", "of values of a device, at most"),
        "decisions": ("int", "that were made"),
        "dearest": ("[DearMove]", "the moves that cost most"),
        "rivals": ("[RivalPlan]", "plans that people write by hand, whether they fit or not"),
    },
    "RivalPlan": {
        "name": ("str", "data parallel, FSDP, Megatron or replicated"),
        "seconds": ("float", "of a step, predicted"),
        "memory_bytes": ("int", "of values of a device, at most"),
    },
    "DearMove": {
        "seconds": ("float", "of a step, predicted"),
        "value": ("str", "what is moved"),
        "at": ("str", "what needs it"),
    },
    "SimulatedCollective": {
        "name": ("str", "the kind and a number"),
        "kind": ("str", "all_reduce, all_gather, ..."),
        "bytes": ("int", "of its result on one device"),
        "runs": ("int", "how often in a step"),
        "seconds": ("float", "of all runs"),
        "algorithm": ("str", "by which, or 'measured'"),
    },
    "Collective": {
        "count": ("int", "how often"),
        "bytes": ("int", "that each device gets"),
    },
}

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


def report(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The report with the name of its schema in front."""
    return {"schema": f"deepx-graph/{name}/{VERSION}", **values}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a report. Raises UsageError, with the nearest name, for one that there is not."""
    if name not in REPORTS:
        raise UsageError(Diagnostic(f"no report '{printable(name)}'", expected=", ".join(REPORTS), hint=suggest(name, REPORTS)))
    found = REPORTS[name]
    needed: dict[str, Fields] = {}
    _collect(found.fields, needed)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"deepx-graph {found.command} --json",
        "description": found.summary,
        **_record({"schema": (f"={report(name, {})['schema']}", "this schema"), **found.fields}),
        "$defs": {record: _record(fields) for record, fields in needed.items()},
    }  # fmt: skip


def _collect(fields: Fields, into: dict[str, Fields]) -> None:
    """The records that the fields name, and those that these name."""
    for type_, _ in fields.values():
        record = type_.split("|")[0].strip("[]{}")
        if record in RECORDS and record not in into:
            into[record] = RECORDS[record]
            _collect(RECORDS[record], into)


def _record(fields: Fields) -> dict[str, Any]:
    return {
        "type": "object", "additionalProperties": False, "required": [name for name in fields if not name.endswith("?")],
        "properties": {name.rstrip("?"): _type(type_) | {"description": words} for name, (type_, words) in fields.items()},
    }  # fmt: skip


_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_ATOMS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"}, "int": {"type": "integer"}, "float": _NUMBER, "bool": {"type": "boolean"}, "null": {"type": "null"},
    "any": {},
}  # fmt: skip


def _type(text: str) -> dict[str, Any]:
    """The schema of a type in the notation of this module."""
    if text.startswith("="):
        return {"const": text[1:]}
    if text.endswith("|null"):
        return {"anyOf": [_type(text.removesuffix("|null")), _ATOMS["null"]]}
    if text[0] == "[":
        return {"type": "array", "items": _type(text[1:-1])}
    if text[0] == "{":
        return {"type": "object", "additionalProperties": _type(text[1:-1])}
    return dict(_ATOMS[text]) if text in _ATOMS else {"$ref": f"#/$defs/{text}"}


def markdown() -> str:
    """The page of all reports and records."""
    return "\n".join(_page()) + "\n"


NOTES = """# Reports as JSON

Written by `deepx-graph schema --markdown`; `deepx-graph schema NAME` prints the JSON Schema (draft 2020-12) of a report.

Every report has the field `schema`. The number at its end grows when a field is taken away or changes its meaning; fields may be
added without. Types: `[T]` is a list, `{T}` a mapping from names, `T|null` may be null; a field with `?` may be missing. Numbers
that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`. Sizes are in bytes.
"""


def _page() -> Iterator[str]:
    yield NOTES
    for name, found in REPORTS.items():
        version = report(name, {})["schema"]
        yield from (f"## {name}", "", f"`deepx-graph {found.command} --json`: {found.summary}. `schema` is `{version}`.", "")
        yield from _table(found.fields)
    yield from ("## Records", "")
    for record, fields in RECORDS.items():
        yield from (f"### {record}", "")
        yield from _table(fields)


def _table(fields: Fields) -> Iterator[str]:
    yield from ("| field | type | |", "|---|---|---|")
    for name, (type_, words) in fields.items():
        shown = type_.replace("|", "\\|")
        yield f"| `{name}` | `{shown}` | {words} |"
    yield ""
