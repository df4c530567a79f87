package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// scheme starts the URIs of files: berth://CONTAINER/PATH.
const scheme = "berth"

// Limits of resources.
const (
	maxResource  = 8 << 20 // bytes
	maxResources = 1000    // that a list shows
	maxWatches   = 16      // containers that a session watches
)

// addResources serves the files of containers as resources.
func (d *Door) addResources() {
	d.server.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: scheme + "://{container}/{+path}", Name: "file",
		Title: "File of a container", Description: "A file of a container of the project, by the container's id."},
		d.readResource)
	d.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			switch method {
			case "resources/list":
				return d.listResources(detached{ctx}, req.GetExtra())
			case "subscriptions/listen": // its subscriptions have no caller of their own
				defer d.watches.listen(req.GetSession(), visitOf(req.GetExtra()))()
			}
			return next(ctx, method, req)
		}
	})
}

// private says that no cache may share what a project's files are.
var private = sdk.Cacheable{CacheScope: "private"}

// uriOf returns the URI of a file.
func uriOf(id berth.ContainerID, name string) string {
	return (&url.URL{Scheme: scheme, Host: string(id), Path: name}).String()
}

// noResource returns the protocol's error for a resource that does not exist.
func noResource(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		data = nil // a text always marshals
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
}

// fileOf returns the container and the path of a URI.
func fileOf(uri string) (berth.ContainerID, string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != scheme || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		!strings.HasPrefix(u.Host, berth.PrefixContainer) {
		return "", "", noResource(uri)
	}
	name, err := pathOf(u.Path)
	if err != nil || name == "/" {
		return "", "", noResource(uri)
	}
	return berth.ContainerID(u.Host), name, nil
}

// listResources serves resources/list: the files below the working directory of the request's container.
func (d *Door) listResources(ctx context.Context, extra *sdk.RequestExtra) (*sdk.ListResourcesResult, error) {
	out := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}, Cacheable: private}
	v := visitOf(extra)
	if v == nil {
		return nil, errors.New("the request has no caller")
	}
	id, err := v.existing(ctx)
	if err != nil || id == "" {
		return out, d.resourceError(v, err)
	}
	files, _, err := d.Containers.Files().List(ctx, v.caller.Project, id, exchange.Page{Limit: maxResources})
	if err != nil {
		return out, d.resourceError(v, err)
	}
	for _, f := range files {
		out.Resources = append(out.Resources, &sdk.Resource{URI: uriOf(id, f.Path), Name: path.Base(f.Path),
			Title: f.Path, MIMEType: mime.TypeByExtension(path.Ext(f.Path)), Size: f.Bytes})
	}
	return out, nil
}

// resourceError returns an error of a resource for the client.
func (d *Door) resourceError(v *visit, err error) error {
	if err == nil {
		return nil
	}
	return d.toolError(v, "resources", err)
}

// readResource serves resources/read.
func (d *Door) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	v := visitOf(req.Extra)
	if v == nil {
		return nil, errors.New("the request has no caller")
	}
	release, err := d.admit(v.caller.Project)
	if err != nil {
		return nil, d.resourceError(v, err)
	}
	defer release()
	ctx = detached{ctx}
	uri := req.Params.URI
	id, name, err := fileOf(uri)
	if err != nil {
		return nil, err
	}
	at := place{path: name, container: id}
	leave, err := at.connect(ctx, v)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil, noResource(uri)
	}
	if err != nil {
		return nil, d.resourceError(v, err)
	}
	defer leave()
	body, _, err := at.client.ReadFile(ctx, "", at.real(), "")
	if err != nil {
		if err := at.explain(err); berth.ErrorCode(err) != berth.CodeNotFound {
			return nil, d.resourceError(v, err)
		}
		return nil, noResource(uri)
	}
	defer body.Close()
	in := bufio.NewReader(body)
	start, _ := in.Peek(512)
	data, err := io.ReadAll(io.LimitReader(in, maxResource+1))
	switch {
	case err != nil:
		return nil, d.resourceError(v, at.explain(err))
	case len(data) > maxResource:
		return nil, d.resourceError(v, berth.Errorf(berth.CodeTooLarge, "The file is larger than %d bytes.",
			maxResource))
	}
	contents := &sdk.ResourceContents{URI: uri, MIMEType: mime.TypeByExtension(path.Ext(name))}
	if contents.MIMEType == "" {
		contents.MIMEType = http.DetectContentType(start)
	}
	if utf8.Valid(data) && !strings.ContainsRune(string(data), 0) {
		contents.Text = string(data)
	} else {
		contents.Blob = data
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}, Cacheable: private}, nil
}
