package evaluation

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// CUE reports errors in an embedded data file at the attribute. These functions move them to the
// place in the file.

var (
	notDecoded = regexp.MustCompile(`(?s)^@embed: failed to decode file: (\S+?):(\d+)(?::\d+)?: (.*)$`)
	notOpened  = regexp.MustCompile(`^@embed: open (\S+): no such file or directory$`)
)

// inEmbedded moves diagnostics about embedded files into these files.
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

// appendBelow appends the path of a data file, relative to a folder that contains it.
func appendBelow(list []string, folder, file string) []string {
	if name, ok := strings.CutPrefix(file, folder+"/"); ok && path.Ext(file) != ".cue" {
		return append(list, name)
	}
	return list
}
