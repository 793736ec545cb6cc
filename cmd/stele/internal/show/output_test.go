package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/resources/explain"
)

func TestColumnsAreAlignedAndNeverBecomeNarrower(t *testing.T) {
	var b bytes.Buffer
	c := &Columns{Out: &Output{Writer: &b}}
	c.Header("REVISION", "ACTOR", "CHANGE")
	c.Add("", Cell{Text: "7", right: true}, Cell{Text: "jürgen"}, Cell{Text: "created"})
	c.Add("    + spec.size: 3\n", Cell{Text: "12", right: true}, Cell{Text: "bo"}, Cell{Text: "deleted"})
	require.NoError(t, c.Flush())
	c.Add("", Cell{Text: "1", right: true}, Cell{Text: "a"}, Cell{Text: "b"})
	c.Add("", Cell{Text: "1", right: true}, Cell{Text: "a"}, Cell{})
	require.NoError(t, c.Flush())
	assert.Equal(t, `REVISION  ACTOR   CHANGE
       7  jürgen  created
      12  bo      deleted
    + spec.size: 3
       1  a       b
       1  a
`, b.String())
}

// A user's name is what some issuer says.
func TestANameDoesNothingToTheTerminal(t *testing.T) {
	const name = "eve\x1b[2J\n 7  bob  \u202edeleted\u009b1m"
	var b bytes.Buffer
	c := &Columns{Out: &Output{Writer: &b}}
	c.Add("", Cell{Text: "1"}, Cell{Text: name}, Cell{Text: "created"})
	require.NoError(t, c.Flush())
	assert.Equal(t, "1  eve\ufffd[2J\ufffd 7  bob  \ufffddeleted\ufffd1m  created\n", b.String())

	b.Reset()
	e := &explain.Explanation{Spec: explain.Spec{User: name, Verb: "get", Path: "/"}, Status: explain.Status{Message: "User \"" + name + "\" cannot",
		Stages: []explain.Stage{{Name: "authorization", Verdict: explain.Refused, Rule: name, Considered: []explain.Considered{{Verdict: "no", Rule: name, Reason: name}}}}}}
	require.NoError(t, Explanation(&b, e))
	assert.False(t, strings.ContainsAny(b.String(), "\x1b\u202e\u009b"), b.String())
	assert.True(t, strings.HasPrefix(b.String(), "Whether eve\ufffd[2J\ufffd 7  bob"), b.String())
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	var b bytes.Buffer
	c := &Columns{Out: &Output{Writer: &b, colored: true}}
	c.Add("", Cell{Text: "a", Style: Added}, Cell{Text: "b"})
	c.Add("", Cell{Text: "long"}, Cell{Text: "b", Style: Removed})
	require.NoError(t, c.Flush())
	assert.Equal(t, "\x1b[32ma\x1b[0m     b\nlong  \x1b[31mb\x1b[0m\n", b.String())
}

func TestTimesHaveTheirOffset(t *testing.T) {
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.FixedZone("", 60*60))
	assert.Equal(t, "2026-11-20 13:00:00Z", (&Output{utc: true}).time(at))
	again, err := client.ParseMoment((&Output{}).time(at), at.Add(time.Hour))
	require.NoError(t, err)
	assert.True(t, at.Equal(again.At))
}

func TestThePagerIsWhatTheEnvironmentSays(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no less here
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"stele's own before others'", map[string]string{"STELE_PAGER": "more -s", "PAGER": "most"}, "more -s"},
		{"others' if there is none", map[string]string{"PAGER": "most"}, "most"},
		{"none if stele's own is empty", map[string]string{"STELE_PAGER": "", "PAGER": "most"}, ""},
		{"none if it is cat", map[string]string{"PAGER": "cat"}, ""},
		{"none if there is none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, pagerCommand(func(name string) (string, bool) { value, ok := c.env[name]; return value, ok }))
		})
	}
}

func TestAPagerGetsAllAndIsWaitedFor(t *testing.T) {
	var b bytes.Buffer
	p, err := startPager("tr a-z A-Z", &b, &b)
	require.NoError(t, err)
	_, err = p.Write([]byte("what was\n"))
	require.NoError(t, err)
	require.NoError(t, p.Close())
	assert.Equal(t, "WHAT WAS\n", b.String())
}
