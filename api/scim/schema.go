package scim

import (
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

type object = map[string]any

// serveConfig serves GET /scim/v2/ServiceProviderConfig.
func serveConfig(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	not := object{"supported": false}
	return write(x, http.StatusOK, object{
		"schemas":          []string{"urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"},
		"documentationUri": exchange.Origin(r) + "/docs/sign-in/",
		"patch":            object{"supported": true},
		"bulk":             object{"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
		"filter":           object{"supported": true, "maxResults": maxResults},
		"changePassword":   not, "sort": not, "etag": not,
		"authenticationSchemes": []object{{"type": "oauthbearertoken", "name": "Key",
			"description": "A key of this server with the role provisioner, as a bearer token.", "primary": true}},
		"meta": object{"resourceType": "ServiceProviderConfig",
			"location": exchange.Origin(r) + root + "/ServiceProviderConfig"},
	})
}

// resourceTypes are the types of resources, by their id.
func resourceTypes(r *http.Request) map[string]object {
	made := map[string]object{}
	for name, schema := range map[string]string{"User": schemaUser, "Group": schemaGroup} {
		made[name] = object{"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:ResourceType"}, "id": name,
			"name": name, "endpoint": "/" + name + "s", "schema": schema,
			"meta": object{"resourceType": "ResourceType",
				"location": exchange.Origin(r) + root + "/ResourceTypes/" + name}}
	}
	return made
}

func serveResourceTypes(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	types := resourceTypes(r)
	return writeAll(x, r, []object{types["User"], types["Group"]})
}

func serveResourceType(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	found, ok := resourceTypes(r)[r.PathValue("type")]
	if !ok {
		return berth.ErrNotFound
	}
	return write(x, http.StatusOK, found)
}

// attribute describes an attribute of a schema.
func attribute(name, kind string, more ...object) object {
	a := object{"name": name, "type": kind, "multiValued": false, "required": false, "caseExact": false,
		"mutability": "readWrite", "returned": "default", "uniqueness": "none"}
	for _, m := range more {
		for k, v := range m {
			a[k] = v
		}
	}
	return a
}

func schemas(r *http.Request) map[string]object {
	many := object{"multiValued": true}
	value := attribute("value", "string")
	of := map[string][]object{
		schemaUser: {attribute("userName", "string", object{"required": true, "uniqueness": "server"}),
			attribute("externalId", "string", object{"caseExact": true}), attribute("displayName", "string"),
			attribute("name", "complex", object{"subAttributes": []object{attribute("givenName", "string"),
				attribute("familyName", "string")}}),
			attribute("emails", "complex", many, object{"subAttributes": []object{value, attribute("type", "string"),
				attribute("primary", "boolean")}}),
			attribute("active", "boolean"),
			attribute("groups", "complex", many, object{"mutability": "readOnly", "subAttributes": []object{value,
				attribute("display", "string")}})},
		schemaGroup: {attribute("displayName", "string", object{"required": true}),
			attribute("externalId", "string", object{"caseExact": true}),
			attribute("members", "complex", many, object{"subAttributes": []object{value,
				attribute("$ref", "reference", object{"referenceTypes": []string{"User"}})}})},
	}
	made := map[string]object{}
	for id, attributes := range of {
		name := "User"
		if id == schemaGroup {
			name = "Group"
		}
		made[id] = object{"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:Schema"}, "id": id, "name": name,
			"description": name, "attributes": attributes,
			"meta": object{"resourceType": "Schema", "location": exchange.Origin(r) + root + "/Schemas/" + id}}
	}
	return made
}

func serveSchemas(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	all := schemas(r)
	return writeAll(x, r, []object{all[schemaUser], all[schemaGroup]})
}

func serveSchema(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	found, ok := schemas(r)[r.PathValue("schema")]
	if !ok {
		return berth.ErrNotFound
	}
	return write(x, http.StatusOK, found)
}

// writeAll answers with descriptions, which have no filter.
func writeAll(x *exchange.Exchange, r *http.Request, all []object) error {
	l, err := page(r, slices.Clone(all), func(o object) any { return o })
	if err != nil {
		return err
	}
	return write(x, http.StatusOK, l)
}
