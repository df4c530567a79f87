package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrBusy is returned while another archive of the sandbox is being made.
var ErrBusy = errors.New("the sandbox's archive is being made or read")

// ErrMoves is returned where the sandbox's file system moves directories in a way that
// an archive cannot follow.
var ErrMoves = errors.New("the sandbox's overlay moves directories without copying them (redirect_dir=on)")

// Archive reads what has changed in the sandbox since its start, as layer.Make takes
// it, with the state of its shell. Commands stand still until it is closed or read
// to its end, which is only then the archive's when no error comes first.
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

// ApplyArchive applies a layer to a sandbox in which nothing has been run yet. After
// an error the sandbox is good for nothing.
func (c *Client) ApplyArchive(ctx context.Context, layer io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/archive", layer)
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

// Sleep has the guest close its socket and its connections until the driver wakes
// it, so that the sandbox's memory can be written to a file. This connection ends;
// the next use makes another.
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
