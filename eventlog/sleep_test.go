package eventlog

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The clock of a machine that slept has not jumped.
func TestSleepIsNoJump(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var awake, all time.Duration
	c := newClock(func() time.Time { return start.Add(all) }, withSleep(func() time.Duration { return awake }, func() time.Duration { return all }))
	awake, all = time.Minute, time.Minute+8*time.Hour
	if now, jumped := c.readings(); jumped != 0 || !now.Equal(start.Add(all)) {
		t.Errorf("it is %v, after a jump of %v", now, jumped)
	}
}

func TestTheTimeSinceBootHasSleepInIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is not known")
	}
	before := sinceBoot()
	text, err := os.ReadFile("/proc/uptime") // which has it, in hundredths of seconds
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	up, after := time.Duration(seconds*float64(time.Second)), sinceBoot()
	if up < before-20*time.Millisecond || up > after+20*time.Millisecond {
		t.Errorf("%v after boot, sinceBoot says %v to %v", up, before, after)
	}
}
