package rule

import "maps"

// MemoryLimit allows the values of a container's "memory_limit".
var MemoryLimit = OneOf("1g", "4g", "16g", "64g")

// NetworkPolicies are the rules for a container's "network_policy", by type.
var NetworkPolicies = map[string]Rule{
	"disabled": Object(Fields{"type": AnyText}),
	"open": Object(Fields{"type": AnyText, "allowed_domains": List(Text(1, 300), 200),
		"denied_addresses": List(Text(1, 64), 100)}),
	"allowlist": Object(Fields{
		"type": AnyText, "allowed_domains": List(Text(1, 300), 200), "allowed_requests": List(Text(1, 512), 200),
		"domain_secrets": List(domainSecret, 32),
	}, "allowed_domains"),
}

// domainSecret allows a secret of a network policy. Which fields a type has is checked where it is parsed.
var domainSecret = Object(Fields{
	"type":   OneOf("value", "aws_sigv4", "oauth2_client_credentials", "github_app"),
	"domain": Text(1, 300), "name": Text(1, 128), "value": Text(1, 10<<20),
	"access_key_id": Text(1, 128), "session_token": Text(1, 16<<10),
	"regions": List(Text(1, 64), 64), "services": List(Text(1, 64), 64),
	"client_id": Text(1, 1024), "token_url": Text(1, 2048), "scopes": List(Text(1, 256), 64), "audience": Text(1, 2048),
	"app_id": Text(1, 64), "installation_id": Text(1, 64), "repositories": List(Text(1, 100), 500),
	"permissions": AnyObject, "api_url": Text(1, 2048),
}, "domain", "name", "value")

// ContainerSource allows a container's "berth" object. more are the rules of fields
// that only one kind of request has.
func ContainerSource(more Fields) Rule {
	all := Fields{
		"template": Text(1, 256), "snapshot_id": Text(1, 256),
		"volumes": List(Object(Fields{
			"name": Text(1, 63), "path": Text(1, 256), "read_only": Boolean,
		}, "name"), 16),
		"on_expiry":  OneOf("delete", "snapshot"),
		"keep_awake": Boolean,
		"network": Object(Fields{"group": Text(1, 63), "name": Text(1, 63), "ports": List(Integer(1, 65535), 32)},
			"group"),
	}
	maps.Copy(all, more)
	return Object(all)
}

// maxSkills is the maximum number of skills that a request may name.
const maxSkills = 200

// Skills are the rules for the "skills" of a container.
var Skills = List(ByType(map[string]Rule{
	"skill_reference": Object(Fields{"type": AnyText, "skill_id": Text(1, 64), "version": Text(1, 64)}, "skill_id"),
	"inline": Object(Fields{
		"type": AnyText, "name": Text(1, 64), "description": Text(1, 1024),
		"source": Object(Fields{"type": OneOf("base64"), "media_type": OneOf("application/zip"),
			"data": Text(1, 70254592)}, "type", "media_type", "data"),
	}, "name", "description", "source"),
}), maxSkills)

// LocalSkills are the rules for the "skills" of a shell that the client runs.
var LocalSkills = List(Object(Fields{
	"name": Text(1, 256), "description": Text(0, 4096), "path": Text(1, 4096),
}, "name", "description", "path"), maxSkills)
