package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMomentsAreWhatPeopleWrite(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	now := time.Date(2026, 11, 20, 15, 30, 0, 0, zone)
	day := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, zone)
	}
	for text, want := range map[string]moment{
		"now":                         {},
		"1200":                        {revision: 1200},
		"2026-11-20T11:00:00Z":        {At: day(20, 13, 0, 0)},
		"2026-11-20T11:00:00.5+02:00": {At: day(20, 11, 0, 0).Add(time.Second / 2)},
		"2026-11-20 11:00:05+02:00":   {At: day(20, 11, 0, 5)},
		"2026-11-20 11:00:05 +02:00":  {At: day(20, 11, 0, 5)},
		"2026-11-20 11:00:05":         {At: day(20, 11, 0, 5)},
		"2026-11-20 14:00":            {At: day(20, 14, 0, 0)},
		"2026-11-20T14:00":            {At: day(20, 14, 0, 0)},
		"2026-11-20":                  {At: day(20, 0, 0, 0)},
		"14:00":                       {At: day(20, 14, 0, 0)},
		"9:05:30":                     {At: day(20, 9, 5, 30)},
		"9:05:30.25":                  {At: day(20, 9, 5, 30).Add(time.Second / 4)},
		"9:05:30.177Z":                {At: day(20, 11, 5, 30).Add(177 * time.Millisecond)},
		"yesterday 9:05:30.25":        {At: day(19, 9, 5, 30).Add(time.Second / 4)},
		"today":                       {At: day(20, 0, 0, 0)},
		"today 14:00":                 {At: day(20, 14, 0, 0)},
		"yesterday":                   {At: day(19, 0, 0, 0)},
		"yesterday 16:00":             {At: day(19, 16, 0, 0)},
		"10m":                         {At: day(20, 15, 20, 0)},
		"10m ago":                     {At: day(20, 15, 20, 0)},
		"2h30m":                       {At: day(20, 13, 0, 0)},
		"3d":                          {At: day(17, 15, 30, 0)},
		"1w1d6h":                      {At: day(12, 9, 30, 0)},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseMoment(text, now)
			require.NoError(t, err)
			assert.Equal(t, want.revision, got.revision)
			assert.True(t, want.At.Equal(got.At), "want %v, got %v", want.At, got.At)
		})
	}
}

func TestWhatIsNoMomentSaysWhatCanBeWritten(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 30, 0, 0, time.UTC)
	for _, text := range []string{"", "tomorrow", "-10m", "m", "25:00", "yesterday 25:00", "2026-13-01", "1.5", "99999999d", "10m from now"} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseMoment(text, now)
			assert.ErrorContains(t, err, `is not a revision or a time; use a revision (1200), a time (`)
		})
	}
}

func TestTheFutureIsNoMoment(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 30, 0, 0, time.UTC)
	_, err := ParseMoment("16:00", now)
	assert.EqualError(t, err, `"16:00" is in the future: now is 2026-11-20 15:30:00Z; write "yesterday 16:00" for the day before`)
	_, err = ParseMoment("2027-01-01", now)
	assert.EqualError(t, err, `"2027-01-01" is in the future: now is 2026-11-20 15:30:00Z`)
}

func TestRevisionsAreNumbersOfTheLog(t *testing.T) {
	for _, text := range []string{"0", "99999999999999999999"} {
		_, err := ParseMoment(text, time.Now())
		assert.ErrorContains(t, err, "is not a revision: revisions begin with 1")
	}
}

// Yesterday at two is 25 hours before today at two where clocks were set back in between.
func TestYesterdayIsTheDayBeforeWhereClocksChange(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 10, 25, 14, 0, 0, 0, zone)
	got, err := ParseMoment("yesterday 14:00", now)
	require.NoError(t, err)
	assert.Equal(t, 25*time.Hour, now.Sub(got.At))
}
