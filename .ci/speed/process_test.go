package main

import (
	"os"
	"strings"
	"testing"
)

func TestStatOfAProcess(t *testing.T) {
	const line = "1234 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100 0 0"
	if ticks, err := parseStat(line); ticks != 300 || err != nil {
		t.Error(ticks, err)
	}
	if _, err := parseStat("1234 (a) S 1"); err == nil {
		t.Error("a short line is read")
	}
	used, err := usageOf([]int{os.Getpid()})
	if err != nil || used.resident <= 0 || used.peak < used.resident {
		t.Error(used, err)
	}
}

func TestOutputOfPerf(t *testing.T) {
	if n, err := parsePerf("# note\n12345,,instructions:u,1000,100.00,,\n"); n != 12345 || err != nil {
		t.Error(n, err)
	}
	for _, text := range []string{"", "<not supported>,,instructions:u,0,100.00,,\n", "<not counted>,,instructions:u,0,0.00,,\n"} {
		if _, err := parsePerf(text); err == nil {
			t.Errorf("%q counts", text)
		}
	}
	if !strings.Contains(machine(), "cores") {
		t.Error(machine())
	}
}
