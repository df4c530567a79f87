package berth

import "context"

type projectContext struct{}

// WithProject returns a context in which requests to the outside are made for a project, which may have a proxy of its
// own. Only the way out reads it: who may do something is always an explicit argument.
func WithProject(ctx context.Context, p ProjectID) context.Context {
	return context.WithValue(ctx, projectContext{}, p)
}

// ProjectOf returns the project for which requests to the outside are made, or "".
func ProjectOf(ctx context.Context) ProjectID {
	p, _ := ctx.Value(projectContext{}).(ProjectID)
	return p
}
