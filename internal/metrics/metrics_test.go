package metrics

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

type keeper []sandbox.Reading

func (k keeper) Readings(context.Context) []sandbox.Reading { return k }
func (keeper) Pool() sandbox.PoolStats {
	return sandbox.PoolStats{Size: 2, Ready: 1, Hits: 7, Misses: 3}
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
	k := keeper{{Project: "proj_1", MemoryLimit: "1g", Isolation: "gvisor", Stats: &berth.ContainerStats{ContainerID: "cntr_1", CPUSeconds: 1.5,
		Memory: berth.MemoryStats{Bytes: 10}, Egress: berth.EgressStats{Refused: 4}}}}
	m := New("v1", k)
	m.AtEnd(nil, &berth.Response{Model: "m", Status: berth.StatusCompleted, Usage: &berth.Usage{InputTokens: 5, OutputTokens: 6}})
	text := scrape(t, m)
	for _, want := range []string{`berth_build_info{go="`, `berth_responses_total{model="m",status="completed"} 1`, `berth_tokens_total{kind="output",model="m"} 6`,
		`berth_containers{isolation="gvisor",memory_limit="1g"} 1`, `berth_pool_hits_total 7`, `berth_pool_misses_total 3`,
		`berth_container_cpu_seconds_total{container="cntr_1",project="proj_1"} 1.5`, `berth_container_memory_bytes{container="cntr_1",project="proj_1"} 10`,
		`berth_container_egress_refused_total{container="cntr_1",project="proj_1"} 4`, "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not told:\n%s", want, text)
		}
	}
}

// Clients name models and make containers; they cannot make series without end.
func TestMetricsAreBounded(t *testing.T) {
	var k keeper
	for i := range 2 * maxReadings {
		k = append(k, sandbox.Reading{Project: "proj_1", MemoryLimit: "1g", Stats: &berth.ContainerStats{ContainerID: berth.ContainerID(fmt.Sprintf("cntr_%d", i))}})
	}
	m := New("v1", k)
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
		t.Error("the number of all containers is not told")
	}
}
