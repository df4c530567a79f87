package metrics

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

type keeper []container.Reading

func (k keeper) Readings(context.Context) []container.Reading { return k }
func (keeper) Pools() []container.PoolStats {
	return []container.PoolStats{{PoolOptions: container.PoolOptions{MemoryLimit: "1g", Size: 2}, Ready: 1, Hits: 7,
		Misses: 3}}
}

// usages is a store of usage records.
type usages []*store.Usage

func (u usages) Usage(_ context.Context, q store.UsageQuery) (in []*store.Usage, _ error) {
	for _, one := range u {
		if one.Kind == q.Kind && one.Start >= q.From.Unix() && one.Start < q.To.Unix() {
			in = append(in, one)
		}
	}
	return in, nil
}

// space reports one volume with little free space.
type space struct{}

func (space) Readings() []diskspace.Reading {
	return []diskspace.Reading{{Area: diskspace.Database, Bytes: 100, Free: 4, Inodes: 9, InodesFree: 8, Low: 5,
		Critical: 1, IsLow: true}}
}
func (space) Reserve() (held, want int64) { return 2, 3 }
func (space) Refusals() int64             { return 6 }

// newMetrics returns metrics whose parts all have samples.
func newMetrics(k keeper) *Metrics {
	m := New("v1")
	m.Collect(Sources{Containers: k, Usages: usages{
		{Project: "proj_1", Kind: store.UsageContainer, Name: "1g", Start: 3600, Seconds: 60},
		{Project: "proj_1", Kind: store.UsageContainer, Name: "1g", Start: time.Now().Unix(), Seconds: 5},
		{Project: "proj_1", Kind: store.UsageResponse, Name: "m", Start: 3600, Count: 60},
	}, Isolation: "gvisor",
		Upstreams: func() []berth.Upstream {
			return []berth.Upstream{{Name: "up", Circuit: "open", InFlight: 2, Turns: 9,
				Keys: []berth.UpstreamKey{{RestSeconds: 1}}}, {Name: "up", Circuit: "closed", InFlight: 1}}
		},
		Snapshots: func(context.Context) (int, int64, error) { return 3, 300, nil },
		Spending: func(context.Context) ([]project.Spend, error) {
			limit := berth.Amount(2_500_000_000)
			return []project.Spend{{Project: "proj_1", Used: 1_250_000_000, Limit: &limit},
				{Project: "proj_1", Key: "key_1", Used: 5}}, nil
		},
		Space:     space{},
		Audit:     func() (int64, int64) { return 11, 1 },
		Forwarded: func() map[string]int64 { return map[string]int64{"siem": 7} }})
	m.Running(func() int { return 13 })
	m.Connections(func() conns.Counts { return conns.Counts{WithKey: 7, WithoutKey: 2, Refused: 5, Closed: 4} })
	return m
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	k := keeper{{Project: "proj_1", MemoryLimit: "1g", Isolation: "gvisor",
		Stats: &berth.ContainerStats{ContainerID: "cntr_1", CPUSeconds: 1.5,
			Memory: berth.MemoryStats{Bytes: 10}, Egress: berth.EgressStats{Refused: 4}}}}
	m := newMetrics(k)
	m.AtEnd(nil, &berth.Response{Model: "m", Status: berth.StatusCompleted,
		Usage: &berth.Usage{InputTokens: 5, OutputTokens: 6}})
	text := scrape(t, m)
	for _, want := range []string{`berth_build_info{go="`, `berth_responses_total{model="m",status="completed"} 1`,
		`berth_tokens_total{kind="output",model="m"} 6`,
		`berth_containers{isolation="gvisor",memory_limit="1g"} 1`,
		`berth_pool_hits_total{memory_limit="1g",template="default"} 7`,
		`berth_pool_misses_total{memory_limit="1g",template="default"} 3`,
		`berth_container_cpu_seconds_total{container="cntr_1",project="proj_1"} 1.5`,
		`berth_container_memory_bytes{container="cntr_1",project="proj_1"} 10`,
		`berth_container_egress_refused_total{container="cntr_1",project="proj_1"} 4`,
		`berth_container_seconds_total{isolation="gvisor",memory_limit="1g",project="proj_1"} 65`,
		`berth_upstream_circuit{state="open",upstream="up"} 1`,
		`berth_upstream_circuit{state="closed",upstream="up"} 0`,
		`berth_upstream_in_flight{upstream="up"} 3`, `berth_upstream_keys_resting{upstream="up"} 1`,
		`berth_upstream_turns_total{upstream="up"} 9`,
		`berth_state_bytes{area="database"} 100`, `berth_state_free_bytes{area="database"} 4`,
		`berth_state_floor_bytes{area="database",floor="low"} 5`,
		`berth_state_floor_bytes{area="database",floor="critical"} 1`, `berth_state_free_inodes{area="database"} 8`,
		`berth_state_low{area="database"} 1`,
		"berth_state_reserve_bytes 2", "berth_state_reserve_target_bytes 3", "berth_state_refused_total 6",
		"berth_snapshots 3", "berth_snapshot_bytes 300", "berth_audit_entries_total 11", "berth_audit_failures_total 1",
		`berth_audit_forward_behind{target="siem"} 7`,
		`berth_connections{key="yes"} 7`, `berth_connections{key="no"} 2`, "berth_connections_refused_total 5",
		"berth_responses_running 13", "berth_connections_closed_total 4",
		`berth_spent_this_month{key="",project="proj_1"} 1.25`,
		`berth_cost_per_month_limit{key="",project="proj_1"} 2.5`,
		"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing:\n%s", want, text)
		}
	}
}

// Clients cannot create an unbounded number of series.
func TestMetricsAreBounded(t *testing.T) {
	var k keeper
	for i := range 2 * maxReadings {
		k = append(k, container.Reading{Project: "proj_1", MemoryLimit: "1g",
			Stats: &berth.ContainerStats{ContainerID: berth.ContainerID(fmt.Sprintf("cntr_%d", i))}})
	}
	m := newMetrics(k)
	for i := range 10 * maxModels {
		m.AtEnd(nil, &berth.Response{Model: fmt.Sprintf("m%d", i), Status: berth.StatusFailed})
	}
	text := scrape(t, m)
	if n := strings.Count(text, "berth_responses_total{"); n != maxModels+1 {
		t.Errorf("got %d models, want %d and the others", n, maxModels)
	}
	if n := strings.Count(text, "berth_container_pids{"); n != maxReadings {
		t.Errorf("got %d containers, want %d", n, maxReadings)
	}
	if !strings.Contains(text, fmt.Sprintf("} %d\n", 2*maxReadings)) {
		t.Error("the number of all containers is missing")
	}
}
