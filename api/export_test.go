package api

// Routes returns the patterns of the table of contents.
func Routes() []string {
	var all []string
	for _, rt := range routes {
		all = append(all, rt.of(nil).Pattern())
	}
	return all
}
