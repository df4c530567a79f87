package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-run/berth"
)

// maxList bounds a response that does not stream, in bytes.
const maxList = 8 << 20

// Get sends a request whose response does not stream, and returns its body.
func (u *Upstream) Get(ctx context.Context, send Send, explain func(*Refusal) Complaint) ([]byte, error) {
	res, err := send(ctx)
	if err != nil {
		return nil, u.failure(ctx, ctx, "", err, explain)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return nil, u.failure(ctx, ctx, "", refuse(res), explain)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	if err != nil {
		return nil, u.failure(ctx, ctx, "", err, explain)
	}
	return body, nil
}

// List gets a list of models and decodes it into page.
func (u *Upstream) List(ctx context.Context, send Send, explain func(*Refusal) Complaint, page any) error {
	body, err := u.Get(ctx, send, explain)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, page); err != nil {
		return u.unreadable(fmt.Errorf("decode list of models: %w", err))
	}
	return nil
}

// Models gets a list of models in OpenAI's form.
func (u *Upstream) Models(ctx context.Context, send Send, explain func(*Refusal) Complaint) ([]berth.Model, error) {
	var page struct {
		Data []struct {
			ID      string  `json:"id"`
			Created float64 `json:"created"` // a whole number, except where it is not
			OwnedBy string  `json:"owned_by"`
		} `json:"data"`
	}
	if err := u.List(ctx, send, explain, &page); err != nil {
		return nil, err
	}
	all := make([]berth.Model, 0, len(page.Data))
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: int64(m.Created), OwnedBy: m.OwnedBy})
	}
	return all, nil
}

// unreadable returns the error for a response that cannot be decoded.
func (u *Upstream) unreadable(err error) error {
	return &berth.Error{Code: berth.CodeUpstream, Err: errors.New(u.Show(err.Error())),
		Message: u.who() + " sent an answer that Berth cannot read. Check its base_url."}
}
