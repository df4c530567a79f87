// Package berth defines the types of Berth, a self-hosted server for OpenAI's
// Responses API: responses, items, events, tools, containers and files. Each type
// marshals to exactly the JSON of OpenAI's API.
//
// All packages share these types: the API decodes requests into them, the store
// stores their JSON, and event streams send it. Unknown fields and unknown types of
// items survive the round trip unchanged.
//
// Read in this order. A Response (response.go) is one request and all work to answer
// it. It is the fold of its Events (event.go). Its input and output are Items
// (item.go). A model calls Tools (tool.go). The shell tool runs in a Container
// (container.go). docs/life-of-a-response.md follows one request through the packages.
//
// The HTTP API is stable. Before version 1, the Go packages are not.
package berth
