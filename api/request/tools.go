package request

import (
	"github.com/berth-run/berth"
)

// unservedTools are the tools of OpenAI's document that this server has not.
var unservedTools = []string{
	"code_interpreter", "computer", "computer_use", "computer_use_preview",
	"file_search", "image_generation", "mcp", "programmatic_tool_calling",
	"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
}

// toolRule checks an entry of "tools".
var toolRule = byType(withUnsupported(map[string]rule{
	berth.ToolFunction:   functionTool,
	berth.ToolCustom:     customTool,
	berth.ToolShell:      object(fields{"type": anyText, "environment": byType(shellEnvironments), "allowed_callers": callers}),
	berth.ToolLocalShell: object(fields{"type": anyText}),
	berth.ToolApplyPatch: object(fields{"type": anyText, "allowed_callers": callers}),
	berth.ToolNamespace:  namespaceTool,
	berth.ToolSearch:     searchTool,
}, "tools", unservedTools))

// foundTool checks a tool that comes with an item: what a search found, or one of
// "additional_tools". A container is settled with the request only.
var foundTool = byType(withUnsupported(map[string]rule{
	berth.ToolFunction:   functionTool,
	berth.ToolCustom:     customTool,
	berth.ToolShell:      object(fields{"type": anyText, "environment": byType(map[string]rule{berth.EnvironmentLocal: localEnvironment}), "allowed_callers": callers}),
	berth.ToolLocalShell: object(fields{"type": anyText}),
	berth.ToolApplyPatch: object(fields{"type": anyText, "allowed_callers": callers}),
	berth.ToolNamespace:  namespaceTool,
	berth.ToolSearch:     searchTool,
}, "tools", unservedTools))

var namespaceTool = object(fields{
	"type": anyText, "name": namespaceName, "description": anyText,
	"tools": list(byType(map[string]rule{berth.ToolFunction: functionTool, berth.ToolCustom: customTool}), 128),
}, "name", "description", "tools")

// searchTool allows a search for tools that the client does, which must be said.
func searchTool(at string, v any) error {
	err := object(fields{"type": anyText, "execution": execution, "description": anyText, "parameters": anyObject})(at, v)
	if err == nil && v.(map[string]any)["execution"] == nil {
		return execution(join(at, "execution"), "server")
	}
	return err
}

func execution(at string, v any) error {
	if err := oneOf("server", "client")(at, v); err != nil {
		return err
	}
	if v == "server" {
		return wire("unsupported_value", at, "Unsupported value: '%s' cannot be 'server'. This server does not search for tools; let the client do it.", at)
	}
	return nil
}

const namePattern = "^[a-zA-Z0-9_-]+$"

var (
	functionName  = matching(namePattern, 128)
	namespaceName = matching(namePattern, 64)
)

var functionTool = strictFunction(object(fields{
	"type": anyText, "name": functionName, "description": anyText,
	"parameters": anyObject, "strict": boolean, "output_schema": anyObject,
	"allowed_callers": callers, "defer_loading": boolean, "async": onlyFalse,
}, "name"))

var customTool = object(fields{
	"type": anyText, "name": functionName, "description": anyText,
	"format": byType(map[string]rule{
		"text":    object(fields{"type": anyText}),
		"grammar": object(fields{"type": anyText, "syntax": oneOf("lark", "regex"), "definition": text(1, 1<<16)}, "syntax", "definition"),
	}),
	"allowed_callers": callers, "defer_loading": boolean, "async": onlyFalse,
}, "name")

// callers allows the model itself. Programs that call tools are not served.
var callers = atLeastOne(list(func(at string, v any) error {
	if err := oneOf("direct", "programmatic")(at, v); err != nil {
		return err
	}
	if v == "programmatic" {
		return wire("unsupported_value", at, "Unsupported value: '%s' cannot be 'programmatic'. Programs that call tools are not supported by this server.", at)
	}
	return nil
}, 2))

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
		"berth": chainSource,
	}),
	berth.EnvironmentReference: object(fields{"type": anyText, "container_id": text(1, 256)}, "container_id"),
	berth.EnvironmentLocal:     localEnvironment,
}

var localEnvironment = object(fields{"type": anyText, "skills": unsupportedUnlessEmpty})

var memoryLimit = oneOf("1g", "4g", "16g", "64g")

var networkPolicies = map[string]rule{
	"disabled": object(fields{"type": anyText}),
	"open":     object(fields{"type": anyText}),
	"allowlist": object(fields{
		"type": anyText, "allowed_domains": list(text(1, 300), 200),
		"domain_secrets": list(object(fields{"domain": text(1, 300), "name": text(1, 128), "value": text(1, 10<<20)}, "domain", "name", "value"), 32),
	}, "allowed_domains"),
}
