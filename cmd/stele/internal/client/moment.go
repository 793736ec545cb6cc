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
	"stele.dev/stele/core/changes"
)

// MomentHelp is what help says of moments, and momentUsage what an error says.
const MomentHelp = `A MOMENT is a revision (1200), a time (2026-11-20T14:00:00Z, or local: "2026-11-20 14:00",
14:00, "yesterday 14:00"), how long ago (10m, 2h30m, 3d), or now.`

const MomentUsage = "a revision (1200), a time (2026-11-20T14:00:00Z, or local: \"2026-11-20 14:00\", 14:00, \"yesterday 14:00\"), how long ago (10m, 2h30m, 3d), or now"

// A moment is a point in the past as a person means it: a revision, or a time.
type moment struct {
	revision uint64    // 0 if it is a time
	At       time.Time // the zero time if it is a revision, or now
}

// isNow tells whether it is whatever is newest.
func (m moment) isNow() bool { return m.revision == 0 && m.At.IsZero() }

// ParseMoment reads a moment. What is relative is so to now, and what is local to now's
// location.
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
	if at.After(now.Add(time.Second)) { // servers tell their time in whole seconds
		hint := ""
		if clockTime.MatchString(text) {
			hint = fmt.Sprintf("; write \"yesterday %s\" for the day before", text)
		}
		return moment{}, fmt.Errorf("%q is in the future: now is %s%s", text, now.Format(TimeLayout), hint)
	}
	return moment{At: at}, nil
}

// NoMomentError is what was written and is neither a revision nor a time.
type NoMomentError struct{ text string }

func (e *NoMomentError) Error() string {
	return fmt.Sprintf("%q is not a revision or a time; use %s", e.text, MomentUsage)
}

var (
	digits    = regexp.MustCompile(`^[0-9]+$`)
	clockTime = regexp.MustCompile(`^\d\d?:\d\d(:\d\d)?$`)
)

// Times with a zone are what they are, those without are local.
var (
	zonedLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00"}
	localLayouts = []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}
)

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
	hour, minute, second := 0, 0, 0
	if clock = strings.TrimSpace(clock); clock != "" {
		at, err := time.Parse("15:04:05", clock)
		if err != nil {
			at, err = time.Parse("15:04", clock)
		}
		if err != nil {
			return time.Time{}, false
		}
		hour, minute, second = at.Clock()
	}
	// Not 24 hours before: days differ where clocks change.
	return time.Date(now.Year(), now.Month(), now.Day()-back, hour, minute, second, 0, now.Location()), true
}

// parseAgo reads a duration as time.ParseDuration does, with days and weeks before it.
func parseAgo(text string, now time.Time) (time.Time, bool) {
	text = strings.TrimSpace(strings.TrimSuffix(text, " ago"))
	ago, ok := usage.ParseDuration(text)
	if !ok {
		return time.Time{}, false
	}
	return now.Add(-ago), true
}

// revisionHeader is in the server's answers below /at: the revision that they show.
const revisionHeader = "Stele-Revision"

// moments resolves moments against a server: its clock, its log.
type moments struct {
	client *http.Client
	server *url.URL
	now    time.Time // of the server, once it has been asked
}

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

// RevisionAt is the revision that --at means; 0 for now, which is for the server to say.
func RevisionAt(ctx context.Context, config *rest.Config, at string) (uint64, error) {
	if at == "now" {
		return 0, nil
	}
	m, err := NewMoments(config)
	if err != nil {
		return 0, err
	}
	revision, err := m.Resolve(ctx, at)
	if err != nil {
		return 0, fmt.Errorf("--at: %w", err)
	}
	return revision, nil
}

// get asks the server for a path; an answer that is not a success is the error that it
// says.
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

// parse reads a moment, relative to the server's clock, which is asked once.
func (m *moments) parse(ctx context.Context, text string) (moment, error) {
	if m.now.IsZero() {
		header, _, err := m.get(ctx, "", "version")
		if err != nil {
			return moment{}, err
		}
		now, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			return moment{}, fmt.Errorf("the server does not tell its time: %w", err)
		}
		m.now = now.In(time.Local)
	}
	return ParseMoment(text, m.now)
}

// Resolve finds the revision that a moment means. Its error is the server's, if that has no such
// moment, or not any more.
func (m *moments) Resolve(ctx context.Context, text string) (uint64, error) {
	at, err := m.parse(ctx, text)
	switch {
	case err != nil:
		return 0, err
	case at.revision > 0:
		return m.show(ctx, strconv.FormatUint(at.revision, 10)) // or hear what the server has
	case at.isNow():
		return m.newest(ctx)
	}
	return m.show(ctx, at.At.UTC().Format(time.RFC3339Nano))
}

// show asks for a moment as it stands in URLs, and returns its revision.
func (m *moments) show(ctx context.Context, at string) (uint64, error) {
	header, _, err := m.get(ctx, "", "at", at, "version")
	if err != nil {
		return 0, err
	}
	revision, err := strconv.ParseUint(header.Get(revisionHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the server at %s does not show the past: it is not stele, or an older one", m.server.Host)
	}
	return revision, nil
}

// newest is the log's revision; who may not list changes gets that of a moment ago.
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
