package plans

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// parseSpan parses a span: a number of days such as 7d, or a duration such as 12h. Empty and 0 are none.
func parseSpan(text string) (time.Duration, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	wrong := errors.New("must be a span such as 7d or 12h, or 0")
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	span, err := time.ParseDuration(text)
	if err != nil || span < 0 {
		return 0, wrong
	}
	return span, nil
}
