package api

import (
	"github.com/berth-run/berth"
)

// unservedTools are the tools of OpenAI's document that this server has not.
var unservedTools = []string{
	"code_interpreter", "computer", "computer_use", "computer_use_preview",
	"file_search", "image_generation", "mcp", "programmatic_tool_calling",
	"tool_search", "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
}

// toolRule checks an entry of "tools".
var toolRule = byType(withUnsupported(map[string]rule{
	berth.ToolFunction:   functionTool,
	berth.ToolCustom:     customTool,
	berth.ToolShell:      object(fields{"type": anyText, "environment": byType(shellEnvironments), "allowed_callers": callers}),
	berth.ToolLocalShell: object(fields{"type": anyText}),
	berth.ToolApplyPatch: object(fields{"type": anyText, "allowed_callers": callers}),
	berth.ToolNamespace: object(fields{
		"type": anyText, "name": namespaceName, "description": anyText,
		"tools": list(byType(map[string]rule{berth.ToolFunction: functionTool, berth.ToolCustom: customTool}), 128),
	}, "name", "description", "tools"),
}, "tools", unservedTools))

const namePattern = "^[a-zA-Z0-9_-]+$"

var (
	functionName  = matching(namePattern, 128)
	namespaceName = matching(namePattern, 64)
)

var functionTool = object(fields{
	"type": anyText, "name": functionName, "description": anyText,
	"parameters": anyObject, "strict": boolean, "output_schema": anyObject,
	"allowed_callers": callers, "defer_loading": loaded,
}, "name")

var customTool = object(fields{
	"type": anyText, "name": functionName, "description": anyText,
	"format": byType(map[string]rule{
		"text":    object(fields{"type": anyText}),
		"grammar": object(fields{"type": anyText, "syntax": oneOf("lark", "regex"), "definition": text(1, 1<<16)}, "syntax", "definition"),
	}),
	"allowed_callers": callers, "defer_loading": loaded,
}, "name")

// callers allows the model itself. Programs that call tools are not served.
var callers = list(func(at string, v any) error {
	if err := oneOf("direct", "programmatic")(at, v); err != nil {
		return err
	}
	if v == "programmatic" {
		return wire("unsupported_value", at, "Unsupported value: '%s' cannot be 'programmatic'. Programs that call tools are not supported by this server.", at)
	}
	return nil
}, 2)

// loaded allows tools that the model sees from the start: there is no tool search
// that would find others.
func loaded(at string, v any) error {
	if err := boolean(at, v); err != nil || v == false {
		return err
	}
	return wire("unsupported_value", at, "Unsupported value: '%s' cannot be true. Tool search is not supported by this server.", at)
}

// chosenTools are the ways in which tool_choice names a tool.
var chosenTools = withUnsupported(map[string]rule{
	berth.ToolFunction:   object(fields{"type": anyText, "name": text(1, 128), "namespace": namespaceName}, "name"),
	berth.ToolCustom:     object(fields{"type": anyText, "name": text(1, 128), "namespace": namespaceName}, "name"),
	berth.ToolShell:      object(fields{"type": anyText}),
	berth.ToolLocalShell: object(fields{"type": anyText}),
	berth.ToolApplyPatch: object(fields{"type": anyText}),
}, "tools", unservedTools)

// allowedTools are those of {"type":"allowed_tools"}: a namespace is all tools in it.
var allowedTools = merged(chosenTools, map[string]rule{
	berth.ToolNamespace: object(fields{"type": anyText, "name": namespaceName}, "name"),
})

var toolChoices = byType(merged(chosenTools, map[string]rule{
	"allowed_tools": object(fields{
		"type": anyText, "mode": oneOf("auto", "required"), "tools": list(byType(allowedTools), 128),
	}, "mode", "tools"),
}))

var shellEnvironments = map[string]rule{
	berth.EnvironmentAuto: object(fields{
		"type": anyText, "file_ids": list(text(1, 256), 50), "memory_limit": memoryLimit,
		"network_policy": byType(networkPolicies), "skills": unsupportedUnlessEmpty,
	}),
	berth.EnvironmentReference: object(fields{"type": anyText, "container_id": text(1, 256)}, "container_id"),
	berth.EnvironmentLocal:     object(fields{"type": anyText, "skills": unsupportedUnlessEmpty}),
}

var memoryLimit = oneOf("1g", "4g", "16g", "64g")

var networkPolicies = map[string]rule{
	"disabled": object(fields{"type": anyText}),
	"open":     object(fields{"type": anyText}),
	"allowlist": object(fields{
		"type": anyText, "allowed_domains": list(text(1, 300), 200),
		"domain_secrets": list(object(fields{"domain": text(1, 300), "name": text(1, 128), "value": text(1, 10<<20)}, "domain", "name", "value"), 32),
	}, "allowed_domains"),
}
