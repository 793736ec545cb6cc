package jsonvalue_test

import (
	"testing"

	"stele.dev/stele/schemas/jsonvalue"
)

func TestCanonicalJSON(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`1`, `1`},
		{`-0.0`, `0`},
		{`1.50`, `1.5`},
		{`1e3`, `1000`},
		{`1.5E-2`, `0.015`},
		{`123456789012345678901234567890`, `1.2345678901234567890123456789e29`},
		{`0.000000000000000000000000000012`, `1.2e-29`},
		{`-1e300`, `-1e300`},
		{`"<é>"`, `"<é>"`},
		{` { "b" : [ 1.0 , null ] , "a" : true } `, `{"a":true,"b":[1,null]}`},
	} {
		got, err := jsonvalue.Canonical([]byte(test.in))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.in, got, err, test.want)
		}
		if again, err := jsonvalue.Canonical(got); err != nil || string(again) != test.want {
			t.Errorf("%s is not stable: %s, %v", test.in, again, err)
		}
	}
	for _, bad := range []string{``, `1 2`, `1e9999999`, `{`, `NaN`} {
		if got, err := jsonvalue.Canonical([]byte(bad)); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
