package show

import (
	"fmt"
	"strings"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Status prints the state of a control plane as text. wide includes kinds without objects.
func Status(out *Output, s *client.Status, wide bool) error {
	c := &Columns{Out: out}
	line := func(name, format string, args ...any) {
		c.Add("", Cell{Text: name, Style: Bold}, Cell{Text: fmt.Sprintf(format, args...)})
	}
	line("Server", "%s", s.Server)
	line("Version", "%s", s.Version)
	if s.Revision > 0 {
		line("Revision", "%d", s.Revision)
	}
	if p := s.Policy; p != nil {
		since := ""
		if p.Since != nil {
			since = ", " + out.time(*p.Since)
		}
		line("Policy", "%.12s%s, since revision %d%s, by %s", p.Digest, client.CommitText(p.Commit), p.Revision, since, p.Actor)
		line("Cluster", "%s", p.Cluster)
	}
	if x := s.Source; x != nil {
		line("Source", "%s", sourceText(x))
	}
	showHealth(s, line)
	for _, x := range s.Certificates {
		line("Certificate", "%s ends %s", x.Name, out.time(x.Ends))
	}
	if s.Disk != nil {
		line("Disk", "%s used, %s free", bytesText(s.Disk.Bytes), bytesText(s.Disk.Free))
	}
	if len(s.Replicas) > 1 {
		for _, x := range s.Replicas {
			line("Replica", "%s", replicaText(x))
		}
	}
	empty := 0
	for i, k := range s.Kinds {
		if k.Count == 0 && !wide {
			empty = len(s.Kinds) - i
			break
		}
		line("Objects", "%d %s", k.Count, k.Resource)
	}
	if empty > 0 {
		line("", "none of %s", usage.Count(empty, "other kind"))
	}
	for _, name := range []string{"revision", "policy", "source", "kinds", "checks", "certificates", "disk", "replicas"} {
		if why := s.Unknown[name]; why != "" {
			line("Unknown", "%s: %s", name, strings.ReplaceAll(why, "\n", "; "))
		}
	}
	for i := len(c.rows) - 1; i > 0; i-- { // each name once
		if c.rows[i].cells[0].Text == c.rows[i-1].cells[0].Text {
			c.rows[i].cells[0].Text = ""
		}
	}
	return c.Flush()
}

// sourceText says what is in the source of the policy, beside what is in force.
func sourceText(x *client.PolicySource) string {
	text := x.Source
	if x.Version != "" {
		text += fmt.Sprintf(" at %.12s", x.Version)
	}
	if x.Signer != "" {
		text += " by " + x.Signer
	}
	switch {
	case x.Message != "":
		text += ": " + strings.ReplaceAll(x.Message, "\n", "; ")
	case x.InSync:
		text += " is in force"
	}
	return text
}

// replicaText says what a replica is, and what is unusual about it.
func replicaText(x client.ReplicaStatus) string {
	text := x.Name
	for _, part := range []struct {
		text string
		show bool
	}{
		{" at " + x.Address, x.Address != ""}, {", " + x.Build, x.Build != ""}, {", leads", x.Leader}, {", this one", x.Self},
		{fmt.Sprintf(", %d revisions behind", x.Lag), x.Live && x.Lag > 0}, {", has other keys", x.Keys != "same"}, {", does not answer", !x.Live},
	} {
		if part.show {
			text += part.text
		}
	}
	return text
}

// showHealth prints whether the server is ready, and the checks of /readyz that fail, or how many pass.
func showHealth(s *client.Status, line func(string, string, ...any)) {
	var failed []string
	for _, x := range s.Checks {
		if !x.OK {
			failed = append(failed, x.Name)
		}
	}
	switch {
	case s.Ready && len(failed) > 0:
		line("Ready", "yes, but %s", strings.Join(failed, ", "))
	case s.Ready:
		line("Ready", "yes, %s", usage.Count(len(s.Checks), "check"))
	case len(failed) > 0:
		line("Ready", "no: %s", strings.Join(failed, ", "))
	default:
		line("Ready", "no")
	}
}

// bytesText formats a number of bytes.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
