package capd

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

// jsonValue is any JSON value, with numbers as their digits.
type jsonValue struct{ value any }

// Generate implements [quick.Generator].
func (jsonValue) Generate(random *rand.Rand, size int) reflect.Value {
	return reflect.ValueOf(jsonValue{draw(random, 4)})
}

func draw(random *rand.Rand, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch random.Intn(kinds) {
	case 0:
		return nil
	case 1:
		return random.Intn(2) == 0
	case 2, 3:
		return drawNumber(random)
	case 4:
		return drawText(random)
	case 5:
		values := make([]any, random.Intn(4))
		for index := range values {
			values[index] = draw(random, depth-1)
		}
		return values
	default:
		values := map[string]any{}
		for range random.Intn(4) {
			values[drawText(random)] = draw(random, depth-1)
		}
		return values
	}
}

func drawNumber(random *rand.Rand) json.Number {
	switch random.Intn(4) {
	case 0:
		return json.Number(strconv.FormatUint(random.Uint64(), 10))
	case 1:
		return json.Number(strconv.FormatInt(-random.Int63(), 10))
	case 2:
		return json.Number(strconv.FormatFloat(random.NormFloat64()*1e9, 'g', -1, 64))
	default:
		var digits strings.Builder
		for range 1 + random.Intn(30) {
			digits.WriteByte(byte('0' + random.Intn(10)))
		}
		return json.Number("-0." + digits.String() + "e-" + strconv.Itoa(random.Intn(400)))
	}
}

// drawText has code points of every plane; surrogates are none.
func drawText(random *rand.Rand) string {
	var text strings.Builder
	for range random.Intn(12) {
		limits := []rune{0x80, 0x800, 0x10000, utf8.MaxRune + 1}
		if point := rune(random.Intn(int(limits[random.Intn(len(limits))]))); utf8.ValidRune(point) {
			text.WriteRune(point)
		}
	}
	return text.String()
}

func TestEveryNumberKeepsItsDigitsAndEveryTextItsCodePoints(t *testing.T) {
	keeps := func(drawn jsonValue) bool {
		text, err := marshal(drawn.value)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := unmarshal(text, &again); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return reflect.DeepEqual(again, drawn.value)
	}
	if err := quick.Check(keeps, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}
