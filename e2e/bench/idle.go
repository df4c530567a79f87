package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// idleTime is for how long idle containers are watched.
const idleTime = 30 * time.Second

// measureIdle measures the cost of idle containers: memory and processor
// time, theirs and the server's.
func measureIdle(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Idle containers"}
	defer b.show(t)
	s, err := b.serve(ctx, fmt.Sprintf("containers: {pool: 0, sleep: %s}\n", 2*idleTime))
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	// What the first container costs once belongs to no figure below.
	if err := s.once(ctx); err != nil {
		return err
	}
	before, err := s.own(ctx)
	if err != nil {
		return err
	}
	var ids []string
	var alone series
	for _, n := range steps(b.n) {
		started := make([]string, n-len(ids))
		if err := errors.Join(atOnce(8, len(started), func(i int) (err error) {
			started[i], err = s.first(ctx, nil)
			return err
		}).errs...); err != nil {
			return err
		}
		ids = append(ids, started...)
		each, err := memoryOfSandboxes(ids)
		if err != nil {
			return err
		}
		r := row{what: fmt.Sprintf("memory (PSS) of each of %d", n), unit: "MB", series: each, target: "20 MB"}
		if n == 1 {
			alone = each
		} else {
			r.beside, r.other = "alone", alone
		}
		t.add(r)
	}
	if err := s.watchIdle(ctx, t, ids, before, "awake"); err != nil {
		return err
	}
	if err := s.awaitSleep(ctx, len(ids)); err != nil {
		return err
	}
	if err := s.watchIdle(ctx, t, ids, before, "asleep"); err != nil {
		return err
	}
	if err := errors.Join(atOnce(8, len(ids), func(i int) error { return s.delete(ctx, ids[i]) }).errs...); err != nil {
		return err
	}
	return s.compareAfter(ctx, t, "", before)
}

// steps are how many containers there are when they are measured.
func steps(n int) []int {
	all := []int{1, 10}
	if n <= 10 {
		return []int{1, max(2, n)}
	}
	return append(all, n)
}

func (s *server) once(ctx context.Context) error {
	id, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	return s.delete(ctx, id)
}

// awaitSleep returns when n containers sleep.
func (s *server) awaitSleep(ctx context.Context, n int) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(10 * idleTime); ; {
		asleep, err := s.figure(ctx, "berth_containers_asleep")
		if err != nil || int(asleep) == n {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%.0f of %d containers sleep", asleep, n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchIdle measures what containers and their server use without any request. state says
// whether they sleep.
func (s *server) watchIdle(ctx context.Context, t *table, ids []string, before own, state string) error {
	pids, err := processesOf(ids)
	if err != nil {
		return err
	}
	all := make([]int, 0, len(pids))
	for _, of := range pids {
		all = append(all, of...)
	}
	used := func() (sandboxes, server float64) { return cpuOf(all), cpuOf([]int{s.cmd.Process.Pid}) }
	theirs, its := used()
	began := time.Now()
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	took := time.Since(began).Seconds()
	theirsNow, itsNow := used()
	now, err := s.own(ctx)
	if err != nil {
		return err
	}
	each, err := memoryOfSandboxes(ids)
	if err != nil {
		return err
	}
	t.add(row{what: fmt.Sprintf("processor of %d, %s, in %s", len(ids), state, idleTime), unit: "% of a core",
		series: one((theirsNow - theirs) / took * 100), target: "3 with the server"})
	t.add(row{what: "processor of the server", unit: "% of a core", series: one((itsNow - its) / took * 100),
		target: "3 with them"})
	t.add(row{what: fmt.Sprintf("memory (PSS) of each of %d, %s", len(ids), state), unit: "MB", series: each,
		target: "20 MB"})
	t.add(row{what: fmt.Sprintf("memory of the server with %d", len(ids)), unit: "MB", series: one(now.memory),
		beside: "with none", other: one(before.memory)})
	t.add(row{what: fmt.Sprintf("goroutines of the server with %d", len(ids)), series: one(now.goroutines),
		beside: "with none", other: one(before.goroutines)})
	return nil
}

// own is the server's own use of resources.
type own struct{ memory, goroutines float64 }

func (s *server) own(ctx context.Context) (own, error) {
	m, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		return own{}, err
	}
	n, err := s.figure(ctx, "go_goroutines")
	return own{m.resident, n}, err
}

// settleTime is the time in which a server must release ended connections and containers:
// idle connections stay open for a while.
const settleTime = 30 * time.Second

// compareAfter waits until the server has no more goroutines than before, and adds rows, whose
// text starts with what, for what remains.
func (s *server) compareAfter(ctx context.Context, t *table, what string, before own) error {
	var now own
	err := s.await(ctx, settleTime, func() bool {
		s.http.CloseIdleConnections()
		var err error
		now, err = s.own(ctx)
		return err == nil && now.goroutines <= before.goroutines
	})
	r := row{what: what + "goroutines of the server when all is gone", series: one(now.goroutines), beside: "before",
		other: one(before.goroutines)}
	if err != nil && ctx.Err() == nil {
		t.note("Within %s the server has not ended %.0f goroutines.", settleTime, now.goroutines-before.goroutines)
	}
	t.add(r)
	t.add(row{what: what + "memory of the server when all is gone", unit: "MB", series: one(now.memory),
		beside: "before", other: one(before.memory)})
	return ctx.Err()
}

// processesOf returns the processes of each container, by the names of their cgroups.
func processesOf(ids []string) ([][]int, error) {
	of := map[string][]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, path := range dirs {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		for _, id := range ids {
			if strings.Contains(string(raw), "/"+id+"\n") {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				of[id] = append(of[id], pid)
			}
		}
	}
	all := make([][]int, 0, len(ids))
	for _, id := range ids {
		if len(of[id]) == 0 {
			return nil, fmt.Errorf("container %s has no processes", id)
		}
		all = append(all, of[id])
	}
	return all, nil
}

// memoryOfSandboxes returns the proportional set size of each container in MB.
func memoryOfSandboxes(ids []string) (s series, err error) {
	pids, err := processesOf(ids)
	if err != nil {
		return s, err
	}
	for _, of := range pids {
		total := 0.0
		for _, pid := range ownMemory(of) {
			total += pss(pid)
		}
		s.add(total, nil)
	}
	return s, nil
}

// ownMemory returns one of the processes for each address space: gVisor's systrap runs a program
// in several processes that share one.
func ownMemory(pids []int) (distinct []int) {
	for _, pid := range pids {
		if !slices.ContainsFunc(distinct, func(other int) bool { return sameMemory(pid, other) }) {
			distinct = append(distinct, pid)
		}
	}
	return distinct
}

// sameMemory reports whether two processes share their address space. It is false if the kernel
// cannot report it.
func sameMemory(a, b int) bool {
	const kcmpVM = 1
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}

// pss returns a process's proportional set size in MB: pages that it shares with
// others are counted in part.
func pss(pid int) float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, _ := strconv.ParseFloat(f[1], 64)
			return kb * 1024 / 1e6
		}
	}
	return 0
}

// groupOf returns the processes of a process group.
func groupOf(group int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if of, err := syscall.Getpgid(pid); err == nil && of == group {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cpuOf returns the processor time that processes have used, in seconds.
func cpuOf(pids []int) float64 { return cpuTimes(pids, 2) }

// cpuWithEnded is cpuOf, with the child processes that have ended.
func cpuWithEnded(pid int) float64 { return cpuTimes([]int{pid}, 4) }

// cpuTimes returns the sum of the first n of /proc's times of processes, in seconds: in user
// mode, in the kernel, and the same of ended children.
func cpuTimes(pids []int, n int) float64 {
	total := 0.0
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(raw), ") ") // the name may have spaces
		f := strings.Fields(rest)
		if len(f) < 11+n {
			continue
		}
		for _, field := range f[11 : 11+n] {
			ticks, _ := strconv.ParseFloat(field, 64)
			total += ticks / 100 // USER_HZ
		}
	}
	return total
}
