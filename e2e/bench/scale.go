package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const (
	scaleServers = 3
	scaleWidth   = 32 // requests at a time, to all servers together
	scaleRounds  = 5
)

// measureScale measures several servers, and then containers that all of them reach.
func measureScale(ctx context.Context, b *bench) error {
	return errors.Join(b.measureServers(ctx), podBench{b}.measure(ctx))
}

// measureServers measures 1, 2 and 3 servers on one PostgreSQL, beside one with SQLite, and how much
// later another server's follower has an event. All programs share the machine, so it shows what
// a further server costs, not what a further machine brings.
func (b *bench) measureServers(ctx context.Context) (err error) {
	model := newModel()
	defer model.Close()
	single, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(single, &err)
	database, at, err := b.startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.stop()) }()
	bucket, blobs, err := b.startBucket(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.stop()) }()
	var servers []*server
	for range scaleServers {
		ports, err := freePorts(1)
		if err != nil {
			return err
		}
		s, err := b.newServer(fmt.Sprintf("%sstore: %s\nblobs: %s\ncluster: {listen: %q}\n", overheadConfig(model.URL),
			at, blobs, ports[0]), "")
		if err != nil {
			return err
		}
		key := []byte(strings.Repeat("5e", 32) + "\n")
		if err := os.WriteFile(filepath.Join(s.state, "seal.key"), key, 0o600); err != nil {
			return err
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.halt(), os.RemoveAll(s.state)) }()
		servers = append(servers, s)
	}
	if err := b.scaleRates(ctx, model.URL, single, servers); err != nil {
		return err
	}
	return b.scaleFollow(ctx, single, servers)
}

// scaleRates measures answers a second, in turn.
func (b *bench) scaleRates(ctx context.Context, model string, single *server, servers []*server) error {
	t := &table{title: fmt.Sprintf("Responses a second of several servers, %d at once", scaleWidth)}
	defer b.show(t)
	kinds := []struct{ name, suffix string }{{"stored", "response, stored"}, {"not stored", "response, store false"}}
	for _, kind := range kinds {
		groups := [][]*server{{single}}
		for n := range servers {
			groups = append(groups, servers[:n+1])
		}
		rates, whole := make([]series, len(groups)), make([]series, len(groups))
		for round := range scaleRounds + 1 {
			for g, group := range groups {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				to := make([]target, len(group))
				for i, s := range group {
					for _, one := range overheadTargets(model, &proxy{cmd: s.cmd}, s) {
						if one.name == kind.suffix {
							to[i] = one
						}
					}
				}
				n := max(scaleWidth, 5*b.n)
				var got series
				took, err := timed(func() error {
					got = atOnce(scaleWidth, n, func(i int) error {
						_, err := to[i%len(to)].request(ctx, group[0].http)
						return err
					})
					return nil
				})
				if err != nil {
					return err
				}
				if round == 0 { // opens connections
					continue
				}
				rates[g].add(float64(n)/took.Seconds(), nil)
				whole[g].join(got)
			}
		}
		for g := range groups {
			t.add(scaleRow(kind.name+": ", g, "/s", rates))
		}
		for g := range groups {
			t.add(scaleRow(kind.name+", until the answer: ", g, "ms", whole))
		}
	}
	return nil
}

// scaleRow returns the row of a group: one server with SQLite, or g with PostgreSQL.
func scaleRow(what string, g int, unit string, results []series) row {
	switch g {
	case 0:
		return row{what: what + "SQLite", unit: unit, series: results[0]}
	case 1:
		what += "PostgreSQL, 1 server"
	default:
		what += fmt.Sprintf("PostgreSQL, %d servers", g)
	}
	return row{what: what, unit: unit, series: results[g], beside: "SQLite", other: results[0]}
}

// scaleFollow measures the time from the request of a response in the background to the last event
// of its stream, which another server sends, or the same one.
func (b *bench) scaleFollow(ctx context.Context, single *server, servers []*server) error {
	t := &table{title: "Follow a response on another server"}
	defer b.show(t)
	run := func(create, follow *server) func() error {
		return func() error {
			var r struct{ ID string }
			if err := create.do(ctx, http.MethodPost, "/v1/responses", map[string]any{"model": "m", "background": true,
				"input": "Answer at once."}, &r); err != nil {
				return err
			}
			resp, err := follow.send(ctx, http.MethodGet, "/v1/responses/"+r.ID+"?stream=true", "", nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && !strings.Contains(string(text), "event: response.completed") {
				err = fmt.Errorf("the stream ends with %.300s", text[max(0, len(text)-300):])
			}
			return err
		}
	}
	there, here := inTurn(ctx, b.n, run(servers[0], servers[1]), run(servers[0], servers[0]))
	alone, _ := inTurn(ctx, b.n, run(single, single), func() error { return nil })
	t.add(row{what: "created on one, followed on another", unit: "ms", series: there, beside: "on the same",
		other: here})
	t.add(row{what: "created and followed on one, SQLite", unit: "ms", series: alone})
	return nil
}
