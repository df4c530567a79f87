package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrBusy means that another archive of the sandbox is being made or read.
var ErrBusy = errors.New("the sandbox's archive is being made or read")

// ErrMoves means that the sandbox's file system renames directories without copying
// them, so an archive would miss their content.
var ErrMoves = errors.New("the sandbox's overlay moves directories without copying them (redirect_dir=on)")

// Archive returns the changes of the sandbox since its start, in the form that
// layer.Make reads, with the state of its shell. Commands are frozen until the archive
// is closed or read to its end. It is complete only if reading returns no error.
func (c *Client) Archive(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/archive", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.Body, nil
	case http.StatusConflict:
		err = ErrBusy
	case http.StatusNotImplemented:
		err = ErrMoves
	default:
		err = fmt.Errorf("the guest answered %s", resp.Status)
	}
	resp.Body.Close()
	return nil, err
}

// ApplyArchive applies a layer to a sandbox that has run no command yet. After an error
// the sandbox is unusable.
func (c *Client) ApplyArchive(ctx context.Context, layer io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/archive", InFrames(layer))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-tar")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return answerError(resp)
}

// Sleep makes the guest close its socket and its connections until the driver wakes it,
// so that the sandbox's memory can be written to a file. It ends this connection; the
// next use of the client opens another.
func (c *Client) Sleep(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/sleep", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the guest answered %s", resp.Status)
	}
	c.Disconnect()
	return nil
}
