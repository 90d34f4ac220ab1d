package capd

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schemer is a type that knows its own JSON Schema.
type Schemer interface {
	JSONSchema() json.RawMessage
}

// SchemaOf gives the JSON Schema of a Go type, as [Func] declares it.
//
// Fields go by their json tags. One with omitempty or of a pointer type may be missing; all others are required. More is said by
// a tag capd, with parts between commas:
//
//	Lang  string `json:"lang" capd:"enum=rust|go,description=The language"`
//	Lines int    `json:"lines" capd:"min=1,max=5000"`
//	Name  string `json:"name" capd:"minLength=1,maxLength=64,pattern=^[a-z]+$"`
//
// A description takes the rest of the tag, commas too. Slices take minItems, maxItems and unique.
//
// Errors: *[SchemaError], with the path to the field, for what the strict profile cannot say.
func SchemaOf[T any]() (map[string]any, error) {
	of := reflect.TypeFor[T]()
	return schemaOf(of, of.String())
}

func schemaOf(of reflect.Type, place string) (map[string]any, error) {
	writer := &schemas{root: of, names: map[reflect.Type]string{}, definitions: map[string]any{}}
	writer.findCircles(of, map[reflect.Type]int{})
	schema, err := writer.schema(of, place)
	if err == nil && len(writer.definitions) > 0 {
		schema["$defs"] = writer.definitions
	}
	return schema, err
}

// schemas writes the schema of one type, and definitions for those that lead back to themselves.
type schemas struct {
	root        reflect.Type
	names       map[reflect.Type]string // of types in circles
	definitions map[string]any
}

// findCircles names each struct type that is met again inside itself.
func (s *schemas) findCircles(of reflect.Type, above map[reflect.Type]int) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		s.findCircles(of.Elem(), above)
	case reflect.Struct:
		if above[of] > 0 {
			if s.names[of] == "" {
				s.names[of] = of.Name() + strings.Repeat("_", len(s.names))
			}
			return
		}
		above[of]++
		for at := range of.NumField() {
			if of.Field(at).IsExported() {
				s.findCircles(of.Field(at).Type, above)
			}
		}
		above[of]--
	}
}

var (
	schemerType  = reflect.TypeFor[Schemer]()
	jsonType     = reflect.TypeFor[json.Marshaler]()
	textType     = reflect.TypeFor[encoding.TextMarshaler]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	numberType   = reflect.TypeFor[json.Number]()
	timeType     = reflect.TypeFor[time.Time]()
	byteListType = reflect.TypeFor[[]byte]()
)

func (s *schemas) schema(of reflect.Type, place string) (map[string]any, error) {
	switch {
	case of.Implements(schemerType):
		var schema map[string]any
		text := reflect.New(of).Elem().Interface().(Schemer).JSONSchema()
		if err := json.Unmarshal(text, &schema); err != nil {
			return nil, &SchemaError{place, fmt.Sprintf("the JSONSchema of %v is no object: %v", of, err)}
		}
		return schema, nil
	case of == rawType || of.Kind() == reflect.Interface && of.NumMethod() == 0:
		return map[string]any{}, nil
	case of == numberType:
		return map[string]any{"type": "number"}, nil
	case of == timeType:
		return map[string]any{"type": "string", "format": "date-time"}, nil
	case of == byteListType:
		return map[string]any{"type": "string"}, nil
	case of.Kind() == reflect.Pointer:
		return s.schema(of.Elem(), place)
	case of.Implements(jsonType) || of.Kind() != reflect.Struct && reflect.PointerTo(of).Implements(jsonType):
		return nil, &SchemaError{place, fmt.Sprintf("%v writes its own JSON: give it a method JSONSchema", of)}
	case of.Implements(textType):
		return map[string]any{"type": "string"}, nil
	}
	switch of.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Slice, reflect.Array:
		return s.list(of, place)
	case reflect.Map:
		if of.Key().Kind() != reflect.String {
			return nil, &SchemaError{place, fmt.Sprintf("the keys of %v are no strings", of)}
		}
		values, err := s.schema(of.Elem(), place+"[]")
		return map[string]any{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return s.object(of, place)
	}
	if schema := integers(of.Kind()); schema != nil {
		return schema, nil
	}
	return nil, &SchemaError{place, fmt.Sprintf("%v has no JSON Schema", of)}
}

func integers(kind reflect.Kind) map[string]any {
	schema := map[string]any{"type": "integer"}
	switch kind {
	case reflect.Int, reflect.Int64:
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		schema["minimum"] = 0
	case reflect.Int8:
		schema["minimum"], schema["maximum"] = math.MinInt8, math.MaxInt8
	case reflect.Int16:
		schema["minimum"], schema["maximum"] = math.MinInt16, math.MaxInt16
	case reflect.Int32:
		schema["minimum"], schema["maximum"] = math.MinInt32, math.MaxInt32
	case reflect.Uint8:
		schema["minimum"], schema["maximum"] = 0, math.MaxUint8
	case reflect.Uint16:
		schema["minimum"], schema["maximum"] = 0, math.MaxUint16
	case reflect.Uint32:
		schema["minimum"], schema["maximum"] = 0, uint32(math.MaxUint32)
	default:
		return nil
	}
	return schema
}

func (s *schemas) list(of reflect.Type, place string) (map[string]any, error) {
	items, err := s.schema(of.Elem(), place+"[]")
	if err != nil {
		return nil, err
	}
	schema := map[string]any{"type": "array", "items": items}
	if of.Kind() == reflect.Array {
		schema["minItems"], schema["maxItems"] = of.Len(), of.Len()
	}
	return schema, nil
}

func (s *schemas) object(of reflect.Type, place string) (map[string]any, error) {
	name := s.names[of]
	if name == "" {
		return s.fields(of, place)
	}
	reference := map[string]any{"$ref": "#/$defs/" + name}
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = nil
		definition, err := s.fields(of, place)
		if err != nil {
			return nil, err
		}
		s.definitions[name] = definition
	}
	return reference, nil
}

func (s *schemas) fields(of reflect.Type, place string) (map[string]any, error) {
	properties, required := map[string]any{}, []string{}
	if err := s.collect(of, place, properties, &required); err != nil {
		return nil, err
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema, nil
}

func (s *schemas) collect(of reflect.Type, place string, properties map[string]any, required *[]string) error {
	for at := range of.NumField() {
		field := of.Field(at)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" && rest == "" {
			continue
		}
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		if field.Anonymous && name == "" && embedded.Kind() == reflect.Struct {
			if err := s.collect(embedded, place, properties, required); err != nil {
				return err
			}
			continue
		}
		if !field.IsExported() {
			continue
		}
		if name == "" {
			name = field.Name
		}
		schema, err := s.schema(field.Type, place+"."+field.Name)
		if err != nil {
			return err
		}
		if strings.Contains(","+rest+",", ",string,") {
			schema = map[string]any{"type": "string"}
		}
		if err := annotate(schema, field.Tag.Get("capd"), place+"."+field.Name); err != nil {
			return err
		}
		isPointer := field.Type.Kind() == reflect.Pointer
		if isOmitted := strings.Contains(","+rest+",", ",omitempty,"); !isOmitted && !isPointer {
			*required = append(*required, name)
		} else if isPointer && !isOmitted {
			// A nil pointer is written as null.
			schema = map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
		}
		properties[name] = schema
	}
	return nil
}

// annotate adds what a tag capd says.
func annotate(schema map[string]any, tag, place string) error {
	for tag != "" {
		var part string
		if text, ok := strings.CutPrefix(tag, "description="); ok {
			schema["description"] = text
			return nil
		}
		part, tag, _ = strings.Cut(tag, ",")
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "enum":
			values, err := enum(schema["type"], value)
			if err != nil {
				return &SchemaError{place, err.Error()}
			}
			schema["enum"] = values
		case "pattern":
			schema["pattern"] = value
		case "format":
			schema["format"] = value
		case "unique":
			schema["uniqueItems"] = true
		case "min", "max", "minLength", "maxLength", "minItems", "maxItems":
			keyword := map[string]string{"min": "minimum", "max": "maximum"}[key]
			if keyword == "" {
				keyword = key
			}
			if _, err := strconv.ParseFloat(value, 64); err != nil {
				return &SchemaError{place, fmt.Sprintf("the tag capd has %s=%s, which is no number", key, value)}
			}
			schema[keyword] = json.Number(value)
		default:
			return &SchemaError{place, fmt.Sprintf("the tag capd has %q; accepted: enum, min, max, minLength, maxLength, pattern, format, minItems, maxItems, unique, description", key)}
		}
	}
	return nil
}

func enum(of any, text string) ([]any, error) {
	values := []any{}
	for _, value := range strings.Split(text, "|") {
		switch of {
		case "integer", "number":
			if _, err := strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("the tag capd has enum=%s, and %q is no number", text, value)
			}
			values = append(values, json.Number(value))
		default:
			values = append(values, value)
		}
	}
	return values, nil
}
