// Package logfiles answers requests for the log as it is stored, below /log/: backups are made of it. The paths are no
// resources; a policy grants them as it grants /metrics. Whoever may read them reads the whole log, with the contents
// of all objects.
//
//	/log/state                     what there is, as backup.State
//	/log/batches?after=R&until=S   stored batches, as backup.WriteBatch writes them
//	/log/segments/NAME             a file of a segment
//	/log/checkpoints/NAME          a checkpoint
package logfiles

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/backup"
)

// The paths.
const (
	Prefix      = "/log/"
	StatePath   = Prefix + "state"
	BatchesPath = Prefix + "batches"
)

// BatchesType is the media type of a stream of batches.
const BatchesType = "application/vnd.stele.log.batches"

// Service answers requests below [Prefix]. It is safe for concurrent use.
type Service struct{ log *backup.Local }

// New returns a service for a log.
func New(log *backup.Local) *Service { return &Service{log} }

// Serves reports whether requests for a path take as long as they need, because they are answered by a service.
func Serves(path string) bool { return strings.HasPrefix(path, Prefix) }

// Answer answers a call for a path below [Prefix].
func (s *Service) Answer(c *call.Call) error {
	switch name := strings.TrimPrefix(c.HTTP.URL.Path, Prefix); {
	case name == "state":
		return s.answerState(c)
	case name == "batches":
		return s.answerBatches(c)
	case strings.HasPrefix(name, "segments/"), strings.HasPrefix(name, "checkpoints/"):
		return s.answerFile(c, name)
	}
	return status.NotServed(c.Info.Verb, c.Resource())
}

func (s *Service) answerState(c *call.Call) error {
	state, err := s.log.State(c.HTTP.Context())
	if err != nil {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return c.Send("application/json", http.StatusOK, text)
}

// answerBatches streams batches. An error in the middle cuts the connection, so that the client does not take the
// stream for complete.
func (s *Service) answerBatches(c *call.Call) error {
	after, err := revisionOf(c, "after")
	if err != nil {
		return err
	}
	until, err := revisionOf(c, "until")
	if err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", BatchesType)
	c.Sent = true
	if c.HTTP.Method == http.MethodHead {
		return nil
	}
	w := newSteady(c.W)
	if err := s.log.WriteTo(c.HTTP.Context(), w, after, until, w.flush); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func revisionOf(c *call.Call, name string) (uint64, error) {
	text := c.HTTP.URL.Query().Get(name)
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, status.BadRequestf("%s=%q is not a revision", name, text)
	}
	return revision, nil
}

// answerFile sends a file that the state names. Clients may ask for ranges, to continue a download.
func (s *Service) answerFile(c *call.Call, name string) error {
	file, err := s.log.OpenFile(c.HTTP.Context(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return status.NotServed(c.Info.Verb, c.Resource())
	}
	if err != nil {
		return err
	}
	defer file.Close()
	c.W.Header().Set("Content-Type", "application/octet-stream")
	c.Sent = true
	http.ServeContent(newSteady(c.W), c.HTTP, path.Base(name), time.Time{}, file)
	return nil
}

// steady is a response without a limit on its length: each write has [call.Stalled].
type steady struct {
	*call.Response
	control *http.ResponseController
}

func newSteady(w *call.Response) *steady { return &steady{w, http.NewResponseController(w)} }

// Write implements [io.Writer].
func (w *steady) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(call.Stalled)) // not every server has deadlines
	return w.Response.Write(b)
}

func (w *steady) flush() { _ = w.control.Flush() }
