package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

// MomentHelp is the part of help texts that explains moments.
const MomentHelp = `A MOMENT is a revision (1200), a time (2026-11-20T14:00:00Z, or local: "2026-11-20 14:00",
14:00, "yesterday 14:00"), how long ago (10m, 2h30m, 3d), or now.`

// MomentUsage is the part of error messages that lists the forms of moments.
const MomentUsage = "a revision (1200), a time (2026-11-20T14:00:00Z, or local: \"2026-11-20 14:00\", 14:00, \"yesterday 14:00\"), how long ago (10m, 2h30m, 3d), or now"

// moment is a point in the past that a user wrote: a revision, or a time.
type moment struct {
	revision uint64    // 0 for a time
	At       time.Time // zero for a revision, and for now
}

// Revision returns the revision, 0 for a time.
func (m moment) Revision() uint64 { return m.revision }

// isNow reports whether the moment is the newest revision.
func (m moment) isNow() bool { return m.revision == 0 && m.At.IsZero() }

// ParseMoment parses a moment. Relative times are relative to now, and local times are in the location of now.
func ParseMoment(text string, now time.Time) (moment, error) {
	text = strings.TrimSpace(text)
	if text == "now" {
		return moment{}, nil
	}
	if digits.MatchString(text) {
		revision, err := strconv.ParseUint(text, 10, 63)
		if err != nil || revision == 0 {
			return moment{}, usage.Errorf("%q is not a revision: revisions begin with 1, and end with %d", text, uint64(1)<<63-1)
		}
		return moment{revision: revision}, nil
	}
	at, ok := parseTime(text, now)
	if !ok {
		return moment{}, usage.Mark(&NoMomentError{text})
	}
	if at.After(now.Add(time.Second)) { // the server's Date header has whole seconds
		hint := ""
		if clockTime.MatchString(text) {
			hint = fmt.Sprintf("; write \"yesterday %s\" for the day before", text)
		}
		return moment{}, fmt.Errorf("%q is in the future: now is %s%s", text, now.Format(TimeLayout), hint)
	}
	return moment{At: at}, nil
}

// NoMomentError is the error for a text that is neither a revision nor a time.
type NoMomentError struct{ text string }

func (e *NoMomentError) Error() string {
	return fmt.Sprintf("%q is not a revision or a time; use %s", e.text, MomentUsage)
}

var (
	digits    = regexp.MustCompile(`^[0-9]+$`)
	clockTime = regexp.MustCompile(`^\d\d?:\d\d(:\d\d([.]\d+)?)?Z?$`)
)

// zonedLayouts are layouts of times with a zone. localLayouts are layouts of local times.
var (
	zonedLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00"}
	localLayouts = []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}
)

// parseTime parses an absolute time, a time of today or yesterday, or an age.
func parseTime(text string, now time.Time) (time.Time, bool) {
	for _, layout := range zonedLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	for _, layout := range localLayouts {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, true
		}
	}
	day, clock, _ := strings.Cut(text, " ")
	back := 0
	switch {
	case day == "yesterday":
		back = 1
	case day == "today":
	case clockTime.MatchString(text):
		clock = text
	default:
		return parseAgo(text, now)
	}
	hour, minute, second, fraction := 0, 0, 0, 0
	clock, utc := strings.CutSuffix(strings.TrimSpace(clock), "Z") // as --utc prints times
	if utc {
		now = now.UTC()
	}
	if clock != "" {
		at, err := time.Parse("15:04:05", clock) // or with a fraction of a second
		if err != nil {
			at, err = time.Parse("15:04", clock)
		}
		if err != nil {
			return time.Time{}, false
		}
		hour, minute, second = at.Clock()
		fraction = at.Nanosecond()
	}
	// A day may have 23 or 25 hours, so this does not subtract 24 hours.
	return time.Date(now.Year(), now.Month(), now.Day()-back, hour, minute, second, fraction, now.Location()), true
}

// parseAgo parses the age of a time, such as 10m or 3d.
func parseAgo(text string, now time.Time) (time.Time, bool) {
	text = strings.TrimSpace(strings.TrimSuffix(text, " ago"))
	ago, ok := usage.ParseDuration(text)
	if !ok {
		return time.Time{}, false
	}
	return now.Add(-ago), true
}

// revisionHeader is the header of answers below /at with the revision that they show.
const revisionHeader = "Stele-Revision"

// moments resolves moments by the clock and the log of a server.
type moments struct {
	client *http.Client
	server *url.URL
	now    time.Time // time of the server, zero until it is read
}

// NewMoments returns a resolver of moments by the clock and the log of a server.
func NewMoments(config *rest.Config) (*moments, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	server.Path = PresentURL(server.Path)
	return &moments{client: client, server: server}, nil
}

// RevisionAt returns the revision of --at. For "now" it returns 0, which servers take for the newest revision.
func RevisionAt(ctx context.Context, config *rest.Config, at string) (uint64, error) {
	if at == "now" {
		return 0, nil
	}
	revision, err := Resolve(ctx, config, at)
	if err != nil {
		return 0, fmt.Errorf("--at: %w", err)
	}
	return revision, nil
}

// Resolve returns the revision of a moment.
func Resolve(ctx context.Context, config *rest.Config, text string) (uint64, error) {
	m, err := NewMoments(config)
	if err != nil {
		return 0, err
	}
	return m.Resolve(ctx, text)
}

// get reads a path of the server. If the server does not answer 200, it returns the error in the answer.
func (m *moments) get(ctx context.Context, query string, path ...string) (http.Header, []byte, error) {
	target := m.server.JoinPath(path...)
	target.RawQuery = query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := m.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK {
		return response.Header, nil, Readable(fmt.Errorf("%s: the server answers %s", target.Path, response.Status), body)
	}
	return response.Header, body, nil
}

// parse parses a moment relative to the server's clock, which it reads once.
func (m *moments) parse(ctx context.Context, text string) (moment, error) {
	if m.now.IsZero() {
		header, _, err := m.get(ctx, "", "version")
		if err != nil {
			return moment{}, err
		}
		now, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			return moment{}, fmt.Errorf("the server's answer has no valid Date header: %w", err)
		}
		m.now = now.In(time.Local)
	}
	return ParseMoment(text, m.now)
}

// Resolve returns the revision of a moment. It returns the server's error if the revision does not exist, or no longer
// does.
func (m *moments) Resolve(ctx context.Context, text string) (uint64, error) {
	at, err := m.parse(ctx, text)
	switch {
	case err != nil:
		return 0, err
	case at.revision > 0:
		return m.show(ctx, strconv.FormatUint(at.revision, 10)) // the server checks that it exists
	case at.isNow():
		return m.newest(ctx)
	}
	return m.show(ctx, at.At.UTC().Format(time.RFC3339Nano))
}

// show returns the revision that the server shows below /at for a moment.
func (m *moments) show(ctx context.Context, at string) (uint64, error) {
	header, _, err := m.get(ctx, "", "at", at, "version")
	if err != nil {
		return 0, err
	}
	revision, err := strconv.ParseUint(header.Get(revisionHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the server at %s does not serve past revisions: it is not stele, or an older version", m.server.Host)
	}
	return revision, nil
}

// newest returns the newest revision of the log. If the user may not list changes, it returns the newest revision
// of the current second.
func (m *moments) newest(ctx context.Context) (uint64, error) {
	_, body, err := m.get(ctx, "limit=1", "apis", changes.Group, changes.Version, changes.Plural)
	if err != nil {
		if at, err2 := m.show(ctx, m.now.UTC().Format(time.RFC3339)); err2 == nil {
			return at, nil
		}
		return 0, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion uint64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, err
	}
	if list.Metadata.ResourceVersion == 0 {
		return 0, errors.New("the server does not say which revision is its newest")
	}
	return list.Metadata.ResourceVersion, nil
}
