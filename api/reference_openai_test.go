package api

import (
	"github.com/berth-run/berth/api/reference"
	"github.com/berth-run/berth/threads"
)

func fileRoutes() []*reference.Route {
	const page = "batches.md"
	return []*reference.Route{
		route("POST /v1/files", "Upload a file", ""),
		route("GET /v1/files", "List files", ""),
		route("GET /v1/files/{file}", "Get a file", ""),
		route("GET /v1/files/{file}/content", "Download a file", ""),
		route("DELETE /v1/files/{file}", "Delete a file", ""),
		route("POST /v1/uploads", "Start an upload in parts", page),
		route("POST /v1/uploads/{upload}/parts", "Upload a part", page),
		route("POST /v1/uploads/{upload}/complete", "Complete an upload", page),
		route("POST /v1/uploads/{upload}/cancel", "Cancel an upload", page),
	}
}

func batchRoutes() []*reference.Route {
	const page = "batches.md"
	return []*reference.Route{
		route("POST /v1/batches", "Create a batch", page),
		route("GET /v1/batches", "List batches", page),
		route("GET /v1/batches/{batch}", "Get a batch", page),
		route("POST /v1/batches/{batch}/cancel", "Cancel a batch", page),
	}
}

func skillRoutes() []*reference.Route {
	const page = "skills.md"
	return []*reference.Route{
		route("POST /v1/skills", "Create a skill", page),
		route("GET /v1/skills", "List skills", page),
		route("GET /v1/skills/{skill}", "Get a skill", page),
		route("POST /v1/skills/{skill}", "Set the default version of a skill", page),
		route("DELETE /v1/skills/{skill}", "Delete a skill", page),
		route("GET /v1/skills/{skill}/content", "Download the default version of a skill", page),
		route("POST /v1/skills/{skill}/versions", "Create a version of a skill", page),
		route("GET /v1/skills/{skill}/versions", "List the versions of a skill", page),
		route("GET /v1/skills/{skill}/versions/{version}", "Get a version of a skill", page),
		route("DELETE /v1/skills/{skill}/versions/{version}", "Delete a version of a skill", page),
		route("GET /v1/skills/{skill}/versions/{version}/content", "Download a version of a skill", page),
	}
}

func vectorStoreRoutes() []*reference.Route {
	const page = "file-search.md"
	return []*reference.Route{
		route("POST /v1/vector_stores", "Create a vector store", page),
		route("GET /v1/vector_stores", "List vector stores", page),
		route("GET /v1/vector_stores/{vector_store}", "Get a vector store", page),
		route("POST /v1/vector_stores/{vector_store}", "Update a vector store", page),
		route("DELETE /v1/vector_stores/{vector_store}", "Delete a vector store", page),
		route("POST /v1/vector_stores/{vector_store}/search", "Search a vector store", page),
		route("POST /v1/vector_stores/{vector_store}/files", "Add a file to a vector store", page),
		route("GET /v1/vector_stores/{vector_store}/files", "List the files of a vector store", page),
		route("GET /v1/vector_stores/{vector_store}/files/{file}", "Get a file of a vector store", page),
		route("POST /v1/vector_stores/{vector_store}/files/{file}", "Update the attributes of a file of a vector store",
			page),
		route("DELETE /v1/vector_stores/{vector_store}/files/{file}", "Remove a file from a vector store", page),
		route("GET /v1/vector_stores/{vector_store}/files/{file}/content", "Get the text of a file of a vector store",
			page),
		route("POST /v1/vector_stores/{vector_store}/file_batches", "Add files to a vector store", page),
		route("GET /v1/vector_stores/{vector_store}/file_batches/{batch}", "Get a batch of files", page),
		route("POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel", "Cancel a batch of files", page),
		route("GET /v1/vector_stores/{vector_store}/file_batches/{batch}/files", "List a batch of files", page),
	}
}

func assistantRoutes() []*reference.Route {
	const page = "life-of-a-response.md#other-apis"
	return []*reference.Route{
		route("POST /v1/assistants", "Create an assistant", page),
		route("GET /v1/assistants", "List assistants", page),
		route("GET /v1/assistants/{assistant}", "Get an assistant", page),
		route("POST /v1/assistants/{assistant}", "Update an assistant", page),
		route("DELETE /v1/assistants/{assistant}", "Delete an assistant", page),
		route("POST /v1/threads", "Create a thread", page),
		route("GET /v1/threads", "List threads", page).Query(reference.Paging...).Gives(listOf[*threads.Thread]()),
		route("GET /v1/threads/{thread}", "Get a thread", page),
		route("POST /v1/threads/{thread}", "Update a thread", page),
		route("DELETE /v1/threads/{thread}", "Delete a thread", page),
		route("POST /v1/threads/{thread}/messages", "Create a message", page),
		route("GET /v1/threads/{thread}/messages", "List messages", page),
		route("GET /v1/threads/{thread}/messages/{message}", "Get a message", page),
		route("POST /v1/threads/{thread}/messages/{message}", "Update a message", page),
		route("DELETE /v1/threads/{thread}/messages/{message}", "Delete a message", page),
		route("POST /v1/threads/runs", "Create a thread with a run", page),
		route("POST /v1/threads/{thread}/runs", "Create a run", page),
		route("GET /v1/threads/{thread}/runs", "List runs", page),
		route("GET /v1/threads/{thread}/runs/{run}", "Get a run", page),
		route("POST /v1/threads/{thread}/runs/{run}", "Update a run", page),
		route("POST /v1/threads/{thread}/runs/{run}/cancel", "Cancel a run", page),
		route("POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs", "Submit the outputs of tools to a run", page),
		route("GET /v1/threads/{thread}/runs/{run}/steps", "List the steps of a run", page),
		route("GET /v1/threads/{thread}/runs/{run}/steps/{step}", "Get a step of a run", page),
	}
}
