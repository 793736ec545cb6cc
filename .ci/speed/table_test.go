package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rounds returns results of some rounds: CPU in µs of each operation, by server and round.
func rounds(cpu map[string][]float64) results {
	r := results{}
	for server, list := range cpu {
		for _, v := range list {
			r.add(server, []reading{{scenario: "get", ops: 1000, cpu: v / 1000, p50: 2, p99: 9, resident: 100, peak: 200}})
		}
	}
	return r
}

func cpuLine(t *testing.T, cpu map[string][]float64, a about) string {
	t.Helper()
	for line := range strings.Lines(report(rounds(cpu), a)) {
		if strings.HasPrefix(line, "| get |") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatal("no line")
	return ""
}

func TestTableSaysWhatIsLargerThanTheNoise(t *testing.T) {
	for _, c := range []struct {
		what string
		cpu  map[string][]float64
		peer bool
		want string
	}{
		{
			"slower in each round", map[string][]float64{beforeName: {80, 81, 82, 83, 84}, nowName: {90, 91, 92, 93, 94}, floorName: {40, 40, 41, 40, 40}}, false,
			"| get | 82.0 (80.0–84.0) µs | 92.0 (90.0–94.0) µs | 1.12 (1.12–1.12) | **more**, p = 0.0079 | 40.0 (40.0–41.0) µs | 2.30 (2.24–2.35) |",
		},
		{
			"noise", map[string][]float64{beforeName: {80, 91, 82, 93, 84}, nowName: {90, 81, 92, 83, 94}}, true,
			"| get | 84.0 (80.0–93.0) µs | 90.0 (81.0–94.0) µs | 1.07 (0.89–1.12) | no, p = 0.69 | – | – | – |",
		},
		{
			"faster", map[string][]float64{beforeName: {1000, 1000, 1000, 1000, 1000}, nowName: {500, 500, 500, 500, 500}, peerName: {2e5, 2e5, 2e5, 2e5, 2e5}}, true,
			"| get | 1.0 (1.0–1.0) ms | 500 (500–500) µs | 0.50 (0.50–0.50) | **less**, p = 0.0079 | – | – | 200 (200–200) ms |",
		},
	} {
		if got := cpuLine(t, c.cpu, about{peer: c.peer}); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
}

// What cannot be counted is left out, and said to be.
func TestInstructionsAreLeftOutVisibly(t *testing.T) {
	cpu := map[string][]float64{beforeName: {1}, nowName: {1}}
	if text := report(rounds(cpu), about{}); !strings.Contains(text, "Instructions are left out") {
		t.Error(text)
	}
	if text := report(rounds(cpu), about{instructions: true}); strings.Contains(text, "left out") {
		t.Error(text)
	}
}

func TestPageIsWrittenBetweenItsMarkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# Page\n\nText.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first\n", "second\n"} {
		if err := writePage(file, text); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(file)
		want := "# Page\n\nText.\n\n## One run\n\n" + beginMark + "\n\n" + text + "\n" + endMark + "\n"
		if err != nil || string(page) != want {
			t.Errorf("%q, %v, want %q", page, err, want)
		}
	}
}
