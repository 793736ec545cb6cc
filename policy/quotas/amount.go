package quotas

import (
	"cmp"
	"math/big"
	"math/bits"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity as a number of 128 bits, in units of 1e-9, to which Kubernetes rounds quantities. A quantity takes at
// most 93 bits, so that no sum of those of a server overflows. Amounts are compared with [Amount.Cmp].
type Amount struct {
	hi int64
	lo uint64
}

const nano = 1_000_000_000

// Units returns the amount of a number of units.
func Units(n int64) Amount {
	if n < 0 {
		return Amount{}.Sub(Units(-n))
	}
	hi, lo := bits.Mul64(uint64(n), nano)
	return Amount{int64(hi), lo}
}

// AmountOf returns the amount of a quantity.
func AmountOf(q resource.Quantity) Amount {
	if n, ok := q.AsInt64(); ok && n > -1<<62 {
		return Units(n)
	}
	own := q.DeepCopy()
	d := own.AsDec() // a quantity is rounded to 1e-9
	n := new(big.Int).Set(d.UnscaledBig())
	for range 9 - int(d.Scale()) {
		n.Mul(n, big.NewInt(10))
	}
	var abs big.Int
	abs.Abs(n)
	a := Amount{int64(new(big.Int).Rsh(&abs, 64).Uint64()), new(big.Int).And(&abs, new(big.Int).SetUint64(1<<64-1)).Uint64()}
	if n.Sign() < 0 {
		a = Amount{}.Sub(a)
	}
	return a
}

// Add returns the sum.
func (a Amount) Add(b Amount) Amount {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(uint64(a.hi), uint64(b.hi), carry)
	return Amount{int64(hi), lo}
}

// Sub returns the difference.
func (a Amount) Sub(b Amount) Amount {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(uint64(a.hi), uint64(b.hi), borrow)
	return Amount{int64(hi), lo}
}

// Cmp returns -1, 0 or 1 if a is less than b, equal or more.
func (a Amount) Cmp(b Amount) int { return a.Sub(b).Sign() }

// Sign returns -1, 0 or 1 if the amount is negative, zero or positive.
func (a Amount) Sign() int {
	switch {
	case a.hi < 0:
		return -1
	case a.hi == 0 && a.lo == 0:
		return 0
	}
	return 1
}

// Quantity returns the amount as a quantity of a format.
func (a Amount) Quantity(format resource.Format) resource.Quantity {
	format = cmp.Or(format, resource.DecimalSI)
	negative := a.Sign() < 0
	if negative {
		a = Amount{}.Sub(a)
	}
	n := new(big.Int).Lsh(big.NewInt(a.hi), 64)
	n.Or(n, new(big.Int).SetUint64(a.lo))
	if negative {
		n.Neg(n)
	}
	if units, rest := new(big.Int).QuoRem(n, big.NewInt(nano), new(big.Int)); rest.Sign() == 0 && units.IsInt64() {
		return *resource.NewQuantity(units.Int64(), format)
	}
	q := resource.NewQuantity(0, format)
	d := q.AsDec()
	d.SetUnscaledBig(n)
	d.SetScale(9)
	return *q
}

// Text returns the amount as Kubernetes writes a quantity of a format.
func (a Amount) Text(format resource.Format) string {
	q := a.Quantity(format)
	return q.String()
}
