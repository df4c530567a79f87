package e2b

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/internal/rule"
)

const maxSteps = 500 // of a build

// stepRule checks a step of a build.
var stepRule = rule.Object(rule.Fields{"type": rule.Text(1, 32), "args": rule.List(rule.Text(0, 1<<20), 1000),
	"filesHash": rule.Text(0, 64),
	"force":     rule.Boolean, "forceUpload": rule.Boolean, "resolveSymlinks": rule.Boolean, "gzip": rule.Boolean},
	"type")

// startBody checks the body of POST /v2/templates/{template}/builds/{build}.
var startBody = rule.Object(rule.Fields{
	"fromImage": rule.Text(0, 1024), "fromTemplate": rule.Text(0, 256), "force": rule.Boolean,
	"fromImageRegistry": rule.Object(rule.Fields{"type": rule.Text(1, 32), "username": rule.Text(0, 4096),
		"password":       rule.Text(0, 1<<16),
		"awsAccessKeyId": rule.Text(0, 256), "awsSecretAccessKey": rule.Text(0, 256), "awsRegion": rule.Text(0, 64),
		"serviceAccountJson": rule.Text(0, 1<<16)}, "type"),
	"steps": rule.List(stepRule, maxSteps), "startCmd": rule.Text(0, 1<<16), "readyCmd": rule.Text(0, 1<<16),
})

// startBuild serves POST /v2/templates/{template}/builds/{build}.
func (h *templates) startBuild(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body build.Request
	if err := x.Decode(r, startBody, &body); err != nil {
		return err
	}
	b, err := h.buildOf(r, c)
	if err != nil {
		return err
	}
	if err := body.Check(); err != nil {
		return err
	}
	if err := h.builds.Start(r.Context(), c, b, &body); err != nil {
		return err
	}
	x.WriteHeader(http.StatusAccepted)
	return nil
}
