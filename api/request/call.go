package request

import (
	"maps"
	"slices"

	"github.com/berth-run/berth"
)

// callItems check the calls and their outputs among the input items.
var callItems = map[string]rule{
	string(berth.ItemFunctionCall): aCall(fields{"name": text(1, 128), "namespace": namespaceName, "arguments": anyText}, "name", "arguments"),
	string(berth.ItemFunctionCallOutput): aCall(fields{
		"output": functionOutput, "name": text(1, 128), "namespace": namespaceName,
	}, "output"),

	string(berth.ItemCustomToolCall):       aCall(fields{"name": text(1, 128), "namespace": namespaceName, "input": anyText}, "name", "input"),
	string(berth.ItemCustomToolCallOutput): aCall(fields{"output": functionOutput}, "output"),

	string(berth.ItemShellCall): aCall(fields{
		"action": openObject(fields{
			"commands": list(anyText, 0), "timeout_ms": milliseconds, "max_output_length": length,
		}, "commands"),
		"environment": byType(map[string]rule{
			berth.EnvironmentReference: openObject(fields{"type": anyText, "container_id": text(1, 256)}, "container_id"),
			berth.EnvironmentLocal:     openObject(fields{"type": anyText, "container_id": anyText}),
		}),
	}, "action"),
	string(berth.ItemShellCallOutput): aCall(fields{
		"max_output_length": length,
		"output": list(openObject(fields{
			"stdout": anyText, "stderr": anyText, "outcome": byType(map[string]rule{
				"exit":    openObject(fields{"type": anyText, "exit_code": anyCode}, "exit_code"),
				"timeout": openObject(fields{"type": anyText, "exit_code": anyCode}),
			}),
		}, "stdout", "stderr", "outcome"), 0),
	}, "output"),

	string(berth.ItemLocalShellCall): aCall(fields{
		"action": byType(map[string]rule{"exec": openObject(fields{
			"type": anyText, "command": list(anyText, 0), "env": environment,
			"timeout_ms": milliseconds, "user": anyText, "working_directory": anyText,
		}, "command")}),
	}, "action"),
	string(berth.ItemLocalShellCallOutput): localShellOutput,

	string(berth.ItemApplyPatchCall): aCall(fields{
		"operation": byType(map[string]rule{
			berth.PatchCreate: openObject(fields{"type": anyText, "path": text(1, 0), "diff": text(0, maxOutput)}, "path", "diff"),
			berth.PatchUpdate: openObject(fields{"type": anyText, "path": text(1, 0), "diff": text(0, maxOutput)}, "path", "diff"),
			berth.PatchDelete: openObject(fields{"type": anyText, "path": text(1, 0), "diff": anyText}, "path"),
		}),
	}, "operation"),
	string(berth.ItemApplyPatchCallOutput): aCall(fields{
		"status": oneOf("completed", "failed"), "output": text(0, maxOutput),
	}, "status"),

	string(berth.ItemToolSearchCall):   aCall(fields{"arguments": anyObject, "execution": execution}, "arguments"),
	string(berth.ItemToolSearchOutput): aCall(fields{"tools": list(foundTool, 128), "execution": execution}, "tools"),
}

// maxOutput bounds a text that a client's tool returns, in characters.
const maxOutput = 10 << 20

var (
	milliseconds = integer(0, 1<<31-1)
	length       = integer(0, 1<<31-1)
	anyCode      = integer(-1<<31, 1<<31-1)
)

// aCall allows a call or an output with these fields.
func aCall(own fields, required ...string) rule {
	own["caller"] = byType(map[string]rule{"direct": anyObject, "program": unsupportedKind("callers")})
	return anItem(own, append(required, "call_id")...)
}

// localShellOutput allows an output that names its call by "id", as OpenAI's
// document and its clients' types have it, or by "call_id", as their examples do.
func localShellOutput(at string, v any) error {
	required := []string{"output"}
	if v.(map[string]any)["id"] == nil {
		required = append(required, "call_id")
	}
	return anItem(fields{"output": text(0, maxOutput)}, required...)(at, v)
}

// environment is variables and their values.
func environment(at string, v any) error {
	vars, ok := v.(map[string]any)
	if !ok {
		return wrongType(at, "an object", v)
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if err := anyText(join(at, name), vars[name]); err != nil {
			return err
		}
	}
	return nil
}

// functionOutput is a string, or parts as in a user's message.
func functionOutput(at string, v any) error {
	if _, ok := v.(string); ok {
		return text(0, maxOutput)(at, v)
	}
	if _, ok := v.([]any); !ok {
		return wrongType(at, "one of a string or an array", v)
	}
	return list(byType(inputParts), 0)(at, v)
}
