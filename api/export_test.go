package api

// Routes returns the patterns of the table of contents.
func Routes() []string {
	var all []string
	for _, rt := range new(handlers).routes() {
		all = append(all, rt.Pattern())
	}
	return all
}

// Document is the served OpenAPI document.
var Document = document
