package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// reading is what one scenario on one fresh server took.
type reading struct {
	scenario     string
	ops          int
	cpu          float64 // seconds of the server, user and system
	p50, p99     float64 // ms
	instructions float64 // of the server's user code; 0 if they are not counted
	resident     float64 // MiB, afterwards
	peak         float64 // MiB, since the server began
}

// results has the readings of each server and scenario, one of each round.
type results map[string]map[string][]reading

func (r results) add(server string, found []reading) {
	if r[server] == nil {
		r[server] = map[string][]reading{}
	}
	for _, f := range found {
		r[server][f.scenario] = append(r[server][f.scenario], f)
	}
}

// values returns a number of each round.
func (r results) values(server, scenario string, number func(reading) float64) (list []float64) {
	for _, f := range r[server][scenario] {
		list = append(list, number(f))
	}
	return list
}

// about has the date, the commits, the machine and the sizes of a run.
type about struct {
	date, now, before, machine string
	rounds, objects, watchers  int
	peer, instructions         bool
}

// The names of the servers.
const (
	nowName    = "now"
	beforeName = "before"
	peerName   = "kube-apiserver"
	floorName  = "floor"
)

// report returns the tables as Markdown.
func report(r results, a about) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s by `make speed` on %s. *now* is the commit `%s`, *before* is `%s`. %d rounds in turns, with fresh servers each time, %d "+
		"objects and %d watchers, TLS, and synced writes. *floor* is a bare Go HTTPS server that sends the same bytes.\n\n", a.date, a.machine, a.now, a.before, a.rounds, a.objects, a.watchers)
	b.WriteString("A number is the median of the rounds, with the least and the greatest. The ratio is that of the medians, with the least and the greatest ratio of a round. " +
		fmt.Sprintf("A difference is larger than the noise if p < %v by the Mann-Whitney U test.\n\n", significant))

	b.WriteString("CPU of the server for each operation, etcd included:\n\n")
	r.table(&b, a, scenarioNames, func(f reading) float64 { return f.cpu * 1e6 / float64(max(f.ops, 1)) }, micros)
	for _, p := range []struct {
		name string
		of   func(reading) float64
	}{{"p50", func(f reading) float64 { return f.p50 }}, {"p99", func(f reading) float64 { return f.p99 }}} {
		fmt.Fprintf(&b, "\nLatency, %s. %d clients send one request after the other; lists and pages are those of one client, watches start at once, and an "+
			"event's latency is from the request to a watcher:\n\n", p.name, clients)
		r.table(&b, a, scenarioNames, func(f reading) float64 { return p.of(f) * 1e3 }, micros)
	}
	b.WriteString("\nResident memory:\n\n")
	r.table(&b, a, []string{scenarioNames[0], scenarioNames[len(scenarioNames)-1]}, func(f reading) float64 { return f.resident }, mebibytes)
	b.WriteString("\nThe most resident memory since the start of the server:\n\n")
	r.table(&b, a, scenarioNames[len(scenarioNames)-1:], func(f reading) float64 { return f.peak }, mebibytes)
	if a.instructions {
		b.WriteString("\nInstructions of the server's user code for each operation, by `perf stat`:\n\n")
		r.table(&b, a, scenarioNames, func(f reading) float64 { return f.instructions / float64(max(f.ops, 1)) }, thousands)
	} else {
		b.WriteString("\nInstructions are left out: `perf stat` cannot count them on this machine.\n")
	}
	return b.String()
}

// table writes a table with a line for each scenario that was measured.
func (r results) table(b *strings.Builder, a about, scenarios []string, number func(reading) float64, show func(float64) scale) {
	head, rule := "| work | before | now | now / before | larger than the noise | floor | now / floor |", "|---|---|---|---|---|---|---|"
	if a.peer {
		head, rule = head+" kube-apiserver |", rule+"---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, s := range scenarios {
		before, now := r.values(beforeName, s, number), r.values(nowName, s, number)
		if len(before) == 0 && len(now) == 0 {
			continue
		}
		floor := r.values(floorName, s, number)
		cells := []string{s, spread(before, show), spread(now, show), ratio(now, before), verdict(now, before), spread(floor, show), ratio(now, floor)}
		if a.peer {
			cells = append(cells, spread(r.values(peerName, s, number), show))
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
}

// spread shows the median of some values, the least and the greatest.
func spread(values []float64, show func(float64) scale) string {
	if len(values) == 0 || slices.Max(values) == 0 { // the floor does not know when it sent an event
		return "–"
	}
	by := show(median(values))
	at := func(v float64) string { return strconv.FormatFloat(v/by.unit, 'f', by.digits, 64) }
	return fmt.Sprintf("%s (%s–%s) %s", at(median(values)), at(slices.Min(values)), at(slices.Max(values)), by.name)
}

// ratio shows the ratio of the medians, and the least and the greatest ratio of a round.
func ratio(a, b []float64) string {
	if len(a) == 0 || len(b) == 0 || slices.Min(b) <= 0 {
		return "–"
	}
	var rounds []float64
	for i := range min(len(a), len(b)) {
		rounds = append(rounds, a[i]/b[i])
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(a)/median(b), slices.Min(rounds), slices.Max(rounds))
}

// verdict says whether a differs from b by more than the noise.
func verdict(a, b []float64) string {
	if len(a) == 0 || len(b) == 0 {
		return "–"
	}
	p := rankTest(a, b)
	switch x, y := median(a), median(b); {
	case p >= significant || x == y:
		return fmt.Sprintf("no, p = %.2f", p)
	case x > y:
		return fmt.Sprintf("**more**, p = %.4f", p)
	}
	return fmt.Sprintf("**less**, p = %.4f", p)
}

// scale is how numbers are shown.
type scale struct {
	name   string
	unit   float64
	digits int
}

// micros returns the scale of a duration in µs.
func micros(v float64) scale {
	switch {
	case v < 100:
		return scale{"µs", 1, 1}
	case v < 1000:
		return scale{"µs", 1, 0}
	case v < 100_000:
		return scale{"ms", 1000, 1}
	}
	return scale{"ms", 1000, 0}
}

func mebibytes(float64) scale { return scale{"MiB", 1, 0} }

func thousands(float64) scale { return scale{"k", 1000, 0} }
