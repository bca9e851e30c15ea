"""Writes the GraphDef of a Keras model of three layers, for graphdef_to_json.py."""

import sys

import tensorflow as tf

model = tf.keras.Sequential(
    [
        tf.keras.Input((32,)),
        tf.keras.layers.Dense(64, activation="relu", name="first"),
        tf.keras.layers.Dense(64, activation="relu", name="second"),
        tf.keras.layers.Dense(10, name="last"),
    ],
    name="model",
)
function = tf.function(model).get_concrete_function(tf.TensorSpec((None, 32), tf.float32))
with open(sys.argv[1], "wb") as file:
    file.write(function.graph.as_graph_def(add_shapes=True).SerializeToString(deterministic=True))
