package evaluation

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"stele.dev/stele/policy/wording"
	"stele.dev/stele/schemas"
)

// What CUE says of a file of data that it cannot embed points to the attribute. It is put where the mistake is.

var (
	notDecoded = regexp.MustCompile(`(?s)^@embed: failed to decode file: (\S+?):(\d+)(?::\d+)?: (.*)$`)
	notOpened  = regexp.MustCompile(`^@embed: open (\S+): no such file or directory$`)
)

// inEmbedded moves diagnostics of embedded files into these.
func (c *Evaluation) inEmbedded(diags schemas.Diagnostics) {
	for i := range diags {
		d := &diags[i]
		folder := path.Dir(d.Pos.File)
		if m := notDecoded.FindStringSubmatch(d.Message); m != nil {
			line, _ := strconv.Atoi(m[2])
			*d = schemas.Diagnostic{Pos: schemas.Position{File: path.Join(folder, m[1]), Line: line, Column: 1}, Message: "it cannot be read: " + m[3], Hint: "embedded by " + d.Pos.String()}
		}
		if m := notOpened.FindStringSubmatch(d.Message); m != nil {
			var known []string
			for _, f := range c.Source.Files {
				known = appendBelow(known, folder, f.Path)
			}
			for _, stray := range c.Source.Strays {
				known = appendBelow(known, folder, stray)
			}
			d.Message, d.Hint = "there is no file "+m[1], wording.DidYouMean(m[1], known, "")
		}
	}
}

// appendBelow adds the way to a file of data from a folder that it is in.
func appendBelow(list []string, folder, file string) []string {
	if name, ok := strings.CutPrefix(file, folder+"/"); ok && path.Ext(file) != ".cue" {
		return append(list, name)
	}
	return list
}
