package nonresource

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
)

// levelPath is where kube-apiserver's verbosity is changed, too.
const levelPath = "/debug/flags/v"

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// setLevel makes the level in the body the lowest one that the server logs, until it stops.
func (s *Service) setLevel(c *call.Call) error {
	text, err := call.ReadLimited(c.HTTP)
	if err != nil {
		return err
	}
	level, known := levels[strings.ToLower(strings.TrimSpace(string(text)))]
	if !known {
		return status.BadRequest("the body is no level: want debug, info, warn or error")
	}
	// It is logged whatever the levels are: who silences the log is in it.
	s.Logger.Error("the level of messages was changed", "auditID", c.AuditID, "from", s.LogLevel.Level(), "to", level)
	s.LogLevel.Set(level)
	c.W.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.Sent = true
	c.W.WriteHeader(http.StatusOK)
	fmt.Fprintf(c.W, "the level of messages is %s\n", strings.ToLower(level.String()))
	return nil
}
