// Package logapi serves the log below /log/: as it is stored, for backups, and its tree heads and proofs. The paths are no
// resources; a policy grants them as it grants /metrics. Whoever may read them reads the whole log, with the contents
// of all objects.
//
//	/log/state                     what there is, as backup.State
//	/log/batches?after=R&until=S   stored batches, as backup.WriteBatch writes them
//	/log/segments/NAME             a file of a segment
//	/log/checkpoints/NAME          a checkpoint
package logapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/projections/checkpoint"
)

// The paths.
const (
	Prefix      = "/log/"
	StatePath   = Prefix + "state"
	BatchesPath = Prefix + "batches"
)

// BatchesType is the media type of a stream of batches.
const BatchesType = "application/vnd.stele.log.batches"

// FileOptions for [Routes].
type FileOptions struct {
	Log *eventlog.Log
	// Archive has the segments of the log; nil if it has none.
	Archive *archive.Archive
	// Checkpoints is the folder of checkpoints; nil if there is none.
	Checkpoints *checkpoint.Folder
	// Retention is the folder of the retention of the log; "" if there is none.
	Retention string
}

// Source returns the log and its files as a source of backups.
func (o FileOptions) Source() *backup.Local {
	l := &backup.Local{Log: o.Log}
	if o.Archive != nil {
		l.Archive = o.Archive
	}
	if o.Retention != "" && o.Archive != nil {
		l.Floors = func() (map[string]uint64, error) { return retention.ReadFloors(o.Retention, o.Archive.Segments()) }
	}
	if o.Checkpoints != nil {
		l.Checkpoints = func() (dir string, found []backup.StateCheckpoint) {
			checkpoints := o.Checkpoints.Recorded() // others cannot be believed elsewhere
			if len(checkpoints) == 0 {
				checkpoints = o.Checkpoints.Good() // a former version made them
			}
			for _, c := range slices.Backward(checkpoints) { // the oldest first
				name := path.Join("checkpoints", filepath.Base(c.File))
				dir = filepath.Dir(c.File)
				found = append(found, backup.StateCheckpoint{Revision: c.Revision, File: backup.StateFile{Name: name, Size: c.Size}})
			}
			return dir, found
		}
	}
	return l
}

// fileService answers requests for a log.
type fileService struct{ log *backup.Local }

// FileRoutes returns the paths for a log.
func FileRoutes(o FileOptions) []nonresource.Route {
	s := fileService{o.Source()}
	return []nonresource.Route{
		{Path: StatePath, Serve: s.answerState},
		{Path: BatchesPath, Long: true, Cost: estimateBatches, Serve: s.answerBatches},
		{Path: Prefix + "segments/", Long: true, Cost: estimateFile, Serve: s.answerFile},
		{Path: Prefix + "checkpoints/", Long: true, Cost: estimateFile, Serve: s.answerFile},
	}
}

// batchTime is the time to read and send one revision.
const batchTime = 2 * time.Microsecond

// estimateBatches returns the time of a stream of batches: by the revisions that it has.
func estimateBatches(c *call.Call) time.Duration {
	after, _ := revisionOf(c, "after")
	until, err := revisionOf(c, "until")
	if err != nil || until < after {
		return 0
	}
	return time.Duration(min(until-after, 1<<20)) * batchTime
}

// estimateFile returns the time of a file of a few megabytes. How large a file is takes a look at the disk.
func estimateFile(*call.Call) time.Duration { return 5 * time.Millisecond }

func (s fileService) answerState(c *call.Call) error {
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
func (s fileService) answerBatches(c *call.Call) error {
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
	flush := func() { _ = http.NewResponseController(c.W).Flush() }
	if err := s.log.WriteTo(c.HTTP.Context(), c.W, after, until, flush); err != nil {
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
func (s fileService) answerFile(c *call.Call) error {
	name := strings.TrimPrefix(c.HTTP.URL.Path, Prefix)
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
	http.ServeContent(c.W, c.HTTP, path.Base(name), time.Time{}, untilDone{file, c.HTTP.Context()})
	return nil
}

// untilDone is a file whose reads fail when the context has ended. The answer is then shorter than its header says, and the
// connection is cut.
type untilDone struct {
	io.ReadSeeker
	ctx context.Context
}

func (f untilDone) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.ReadSeeker.Read(p)
}
